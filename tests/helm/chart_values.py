"""Values with which the chart is rendered in tests: each way in which a site may have it."""

from typing import Any

SHA = "a1" * 32
_PEOPLE: dict[str, Any] = {
    "issuer": "https://sso.example.com/realms/cluster",
    "audience": "foreshock",
    "roles": {"viewer": ["gpu-users"], "admin": ["alice@example.com"]},
}
_EVERY: dict[str, Any] = {
    "image": {"repository": "registry.example.org/foreshock", "tag": "1", "pullPolicy": "Always", "pullSecrets": ["x"]},
    "config": {
        "mode": "act",
        "schedulers": [
            {"kind": "kubernetes", "name": "here", "identity": "foreshock", "evict": True},
            {
                "kind": "webhook",
                "name": "ops",
                "url": "https://hooks.example.org/x",
                "secret_file": "/run/secrets/site-webhooks/ops",
            },
        ],
        "people": _PEOPLE,
        "dashboard": {
            "sign_in": "oidc",
            "address": "https://foreshock.example.com",
            "client_secret_file": "/run/secrets/foreshock-dashboard/client-secret",
        },
    },
    "server": {
        "replicas": 3,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "control", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
    "tls": {"clients": "nodes-ca"},
    "secrets": ["site-webhooks", "site.chat"],
    "sidecar": {
        "secrets": ["scrape-tokens"],
        "arguments": ["--log-level=debug"],
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
    },
    "dashboard": {"tokenSha256": ""},
    "nats": {"url": "tls://nats.example.org:4222", "replicas": 2},
    "rbac": {"evict": True, "jobs": True},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    "monitor": {"enabled": True, "labels": {"release": "prometheus"}},
}
RENDERINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "every option": _EVERY,
    "PostgreSQL": {
        "database": {"secret": "site-database"},
        "server": {"replicas": 2},
        "dashboard": {"tokenSha256": SHA},
    },
    "SQLite": {
        "database": {"sqlite": {"enabled": True, "size": "5Gi", "storageClass": "fast"}},
        "dashboard": {"tokenSha256": SHA},
    },
    "NATS": {"nats": {"url": "tls://nats.example.org:4222"}, "dashboard": {"tokenSha256": SHA}},
    "a proxy signs in": {
        "config": {
            "people": {"roles": {"viewer": ["gpu-users"]}},
            "dashboard": {
                "sign_in": "proxy",
                "proxies": ["10.1.0.5"],
                "person_header": "X-Forwarded-Email",
                "groups_header": "X-Forwarded-Groups",
                "hosts": ["foreshock.example.com"],
            },
        },
        "dashboard": {"tokenSha256": SHA},
    },
    "least": {"sidecar": {"enabled": False}, "dashboard": {"enabled": False}, "networkPolicy": {"enabled": False}},
}
WRONG: dict[str, dict[str, Any]] = {
    "/server": {"server": {"replica": 2}},
    "/server/replicas": {"server": {"replicas": 2}, "database": {"sqlite": {"enabled": True}}},
    "/nats/url": {"nats": {"url": "https://nats.example.org"}},
    "/config/tls": {"config": {"tls": {"key": "/etc/key"}}},
    "/config/mode": {"config": {"mode": "dry"}},
    "/dashboard/tokenSha256": {"dashboard": {"tokenSha256": "the token itself"}},
    "/sidecar/sources": {"sidecar": {"sources": []}},
    "/secrets/0": {"secrets": ["A Secret"]},
    "/tls/clients": {"tls": {"clients": "/etc/nodes-ca.pem"}},
}
# Those that the API server gets: the others differ from them in nothing that it looks at.
APPLIED = ("default", "every option", "PostgreSQL", "SQLite", "NATS")
