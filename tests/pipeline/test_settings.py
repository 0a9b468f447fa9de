"""The numbers of a pipeline can be told apart by their fingerprint."""

from __future__ import annotations

from dataclasses import fields, replace

from strandline.pipeline.settings import PipelineSettings


def test_the_fingerprint_changes_with_every_number() -> None:
    default = PipelineSettings()
    assert default.fingerprint() == PipelineSettings().fingerprint()
    changed = {
        replace(default, **{each.name: 17}).fingerprint() for each in fields(PipelineSettings)
    }
    assert len(changed) == len(fields(PipelineSettings))
    assert default.fingerprint() not in changed
