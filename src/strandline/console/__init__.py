"""What is served over HTTP: pushes, transactions, queries, status, metrics.

guard     pure   who may ask: token, Host, Origin, and how often a wrong token may be tried
limits    pure   how large what is sent may be
gauges    shell  numbers of pipelines, as Prometheus reads them
routes    shell  what each address answers
server    shell  where it listens: loopback, or with TLS
serving   shell  the pipelines of a store that are served
"""
