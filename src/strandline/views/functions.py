"""The functions of Spark that are allowed, and why others are not.

A function that is on no list here is refused. A new one is added only if it reads nothing but its
arguments, and if the same rows give the same answer in any order and on any number of machines.
"""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


SCALAR = names("""
    abs acos acosh add_months aggregate array array_append array_compact array_contains
    array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_repeat array_sort array_union arrays_overlap
    arrays_zip ascii asin asinh atan atan2 atanh base64 bin bit_count bit_length bround cardinality
    cast cbrt ceil ceiling char char_length character_length chr coalesce concat concat_ws contains
    conv cos cosh cot crc32 csc date_add date_diff date_format date_from_unix_date date_sub
    date_trunc dateadd datediff day dayofmonth dayofweek dayofyear decode degrees div e element_at
    elt encode endswith equal_null exists exp expm1 extract factorial filter find_in_set flatten
    floor forall format_number from_unixtime get get_json_object greatest hash hex hour hypot if
    ifnull initcap instr isnan isnotnull isnull json_array_length lcase last_day least left len
    length levenshtein ln locate log log1p log2 lower lpad ltrim luhn_check make_date
    make_timestamp map map_concat map_contains_key map_entries map_filter map_from_arrays
    map_from_entries map_keys map_values mask md5 minute mod month months_between named_struct
    nanvl negative next_day not nullif nullifzero nvl nvl2 octet_length overlay pi pmod position
    positive pow power quarter radians reduce regexp_count regexp_extract regexp_extract_all
    regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse right rint rlike
    round rpad rtrim sec second sequence sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign
    signum sin sinh size slice sort_array soundex space split split_part sqrt startswith str_to_map
    struct substr substring substring_index tan tanh timestamp_micros timestamp_millis
    timestamp_seconds timestampadd timestampdiff to_date to_json to_number to_timestamp
    transform transform_keys transform_values translate trim trunc try_add try_cast try_divide
    try_element_at try_multiply try_subtract try_to_number try_to_timestamp typeof ucase unbase64
    unhex unix_micros unix_millis unix_seconds unix_timestamp upper url_decode url_encode
    weekday weekofyear width_bucket xxhash64 year zeroifnull zip_with
""")

AGGREGATE = names("""
    approx_count_distinct avg bit_and bit_or bit_xor bool_and bool_or collect_list collect_set count
    count_if every grouping grouping_id max mean min some sum any
""")

SORTED_ONLY = names("collect_list collect_set")
"""Aggregates whose answer has an order that nobody chose, unless it is sorted at once."""

FOLDING = names("sum avg mean")
"""Aggregates of which rounding makes the order of the rows visible if they add floats."""

RANKING = names("rank dense_rank percent_rank cume_dist")
PLACING = names("row_number ntile lag lead first_value last_value nth_value")
"""Window functions that tell tied rows apart, so that their order must be total."""

GENERATING = names("explode explode_outer posexplode posexplode_outer")

CLOCK = names("current_timestamp now current_date curdate")
"""Replaced by the time of `BEGIN` in programs."""


LISTED = SCALAR | AGGREGATE | RANKING | PLACING | GENERATING | CLOCK

CHANCE = names("rand random randn randstr uniform uuid shuffle")

ORDERED = names("""
    any_value array_agg first last listagg max_by min_by mode string_agg
""")

ROUNDED = names("""
    approx_percentile corr covar_pop covar_samp kurtosis median percentile percentile_approx
    regr_intercept regr_r2 regr_slope skewness std stddev stddev_pop stddev_samp var_pop var_samp
    variance
""")

QUERY_ONLY = CHANCE | ORDERED | ROUNDED
"""Allowed in a query, whose answer nobody computes again; never in a program."""

_ORDER = "its answer depends on the order of the rows, which nobody promises"
_SESSION = "it tells about the session or the machine, which are no part of any collection"
_CODE = "it would run code or read files outside of the store"
_OTHER_CLOCK = (
    "the only clock of a program is that of BEGIN; use current_timestamp() or current_date()"
)


def _reasons(reason: str, listed: frozenset[str]) -> dict[str, str]:
    return dict.fromkeys(listed, reason)


REASONS: dict[str, str] = {
    **_reasons(_CODE, names("reflect try_reflect java_method xpath xpath_string xpath_int")),
    **_reasons(
        _SESSION,
        names("""
            current_catalog current_database current_path current_role current_schema
            current_timezone current_user input_file_block_length input_file_block_start
            input_file_name monotonically_increasing_id session_user spark_partition_id user version
        """),
    ),
    **_reasons(_OTHER_CLOCK, names("localtimestamp current_time localtime sysdate getdate")),
    **_reasons(
        "a transaction that is computed again would get another answer; compute it where the rows "
        "come from",
        CHANCE,
    ),
    **_reasons(_ORDER, ORDERED),
    **_reasons("it adds floats in the order of the rows, which nobody promises", ROUNDED),
    **_reasons("a table function reads what is no collection", names("range read_files")),
    **_reasons("it names a table by a string", names("identifier")),
}


def refusal(name: str) -> str:
    """Why a function that is not listed is refused.

    >>> refusal("Java_Method")
    'it would run code or read files outside of the store'
    """
    return REASONS.get(name.casefold(), "it is not on the list of allowed functions")
