from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.secrets import MASK, Secrets, holds_secrets, masked

KEYS = [
    "sk-" + "a1b2" * 8,
    "sk-ant-api03-" + "Ab1_" * 10,
    "ghp_" + "a" * 36,
    "github_pat_" + "a" * 40,
    "glpat-" + "a" * 20,
    "AKIA" + "A" * 16,
    "AIza" + "a" * 35,
    "xoxb-" + "1" * 12,
    "hf_" + "a" * 34,
    "npm_" + "a" * 36,
    "sk_live_" + "a" * 24,
    "eyJ" + "a" * 20 + ".eyJ" + "b" * 20 + "." + "c" * 20,
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc+/=\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\ncut off",
    "GOCSPX-" + "a" * 28,
    "xapp-1-A0123-" + "1" * 13,
    "MIIEpAIBAAKCAQEA" + "a" * 48 + "\n" + "b" * 64 + "\nc1==",
    "b3BlbnNzaC1rZXktdjE" + "A" * 51,
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_well_known_forms_are_masked(key: str) -> None:
    assert masked(f"before {key}") == f"before {MASK}"
    assert key not in masked(f"key='{key}'\n")


def test_the_name_and_password_of_an_address_are_masked() -> None:
    assert masked("postgres://me:hunter2@db.example/x") == f"postgres://{MASK}@db.example/x"


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("redis://", ":hunter2hunter2", "@host/0"),
        ("https://", "abcdeftoken1234567", "@github.com/x"),
        ("curl -H 'Authorization: Bearer ", "abcdef0123456789", "' x"),
        ('"authorization": "Basic ', "bWU6aHVudGVyMg==", '"'),
        ("aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "\n"),
        ('"SecretAccessKey": "', "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", '"'),
        ("AccountName=a;AccountKey=", "aZ09" * 20 + "==", ";x"),
        ("https://hooks.slack.com/services/", "T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX", " x"),
        ("x y\n", "a1B/" * 16 + "\n" + "c3D+" * 16 + "\nZg==", "\n-----END RSA PRIVATE KEY-----\n"),
        ("key.txt:2:", "MIIEpAIBAAKCAQEA" + "a" * 48, ""),
    ],
)
def test_what_its_place_makes_a_key_is_masked(before: str, key: str, after: str) -> None:
    once = masked(before + key + after)
    assert key not in once
    assert once.replace("\n\n", "\n") == (before + MASK + after).replace("\n\n", "\n")
    assert masked(once) == once


@pytest.mark.parametrize(
    "text",
    [
        'headers = {"Authorization": f"Bearer {token}"}',
        "Authorization: Bearer YOUR_TOKEN",
        "ssh://git@github.com/x",
        "https://somebody.withoutnumbers@example.org",
        "aws_secret_access_key = os.environ[name]",
        "-----BEGIN CERTIFICATE-----\nMIID" + "a" * 60 + "\n" + "b" * 64 + "\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIB" + "a" * 60 + "\n-----END PUBLIC KEY-----",
        "two words\n-----END RSA PRIVATE KEY-----",
        "sk-learn-is-a-library-of-python",
        "git@github.com:owner/name.git",
        "http://example.org:8080/a@b",
        "the task-1234567890 and risk-management of a desk-1234567890123456789012",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "sha256:" + "a1" * 32,
        "def token(key: str) -> str: ...",
    ],
)
def test_what_is_no_key_stays(text: str) -> None:
    assert masked(text) == text


def test_values_of_variables_are_masked_wherever_they_are() -> None:
    environment = {"API_KEY": "value-of-mine", "SHORT_TOKEN": "abc", "HOME": "/home/me", "PWD": "/a/long/folder"}
    values = Secrets.of(environment).values
    assert values == ("value-of-mine",)
    assert masked("x=value-of-mine, y=value-of-mine", values) == f"x={MASK}, y={MASK}"


def test_what_a_run_calls_its_own_is_hidden_whatever_the_variables_are_called() -> None:
    environment = {
        "ROUTER": "a/key of mine",
        "COPY": "x a/key of mine y",
        "SHORT": "abc",
        "LONGER": "abcd",
        "HOME": "/me",
    }
    secrets = Secrets.of(environment, ["ROUTER"], ["abc"])
    assert secrets.left_of(environment) == {"LONGER": "abcd", "HOME": "/me"}
    assert masked("a/key of mine abc", secrets.values) == f"{MASK} abc", "what is short is in every text"


@pytest.mark.parametrize(
    "spelt",
    ['one"two\u00fc/%', 'one\\"two\u00fc/%', 'one\\"two\\u00fc/%', "one%22two%C3%BC%2F%25", "one%22two%C3%BC/%25"],
)
def test_values_are_masked_as_json_and_addresses_spell_them(spelt: str) -> None:
    assert masked(f"x={spelt}", Secrets.of({"KEY": 'one"two\u00fc/%'}).values) == f"x={MASK}"


def test_variables_that_say_so_are_left_out() -> None:
    secrets = [
        "API_KEY",
        "token",
        "MY_SECRET_X",
        "DB_PASSWORD",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GH_PAT",
        "PASSPHRASE",
        "DB_PASS",
        "SMTP_PASS_2",
        "PGPASS",
        "MY_JWT",
        "SESSION_COOKIE",
        "SLACK_WEBHOOK_URL",
    ]
    others = ["SSH_ASKPASS", "COMPASS_HOME", "PATH", "HOME", "PWD", "LANG", "SSH_AUTH_SOCK", "COMPAT"]
    assert list(Secrets().left_of(dict.fromkeys([*secrets, *others], "x"))) == others


@pytest.mark.parametrize(
    "path",
    [
        *(
            ".env",
            "a/.env",
            ".env.local",
            ".ENV",
            "id_rsa",
            "a/b/id_ed25519",
            "server.key",
            "CERT.PEM",
            ".netrc",
            ".npmrc",
        ),
        *("credentials", "aws-credentials.json", ".aws/config", "secrets.yaml", "app.secrets.toml", "home/.ssh/config"),
        *("prod.env", ".env~", ".env_local", ".env-prod", "x/terraform.tfvars", "a.auto.tfvars.json", "id_rsa.bak"),
        *("id_ed25519_work", "key.pem.bak", "server.key~", ".my.cnf", ".s3cfg", ".config/gh/hosts.yml", "auth.json"),
        *("kubeconfig", "prod.kubeconfig", "/home/me/.ssh/x", "/home/me/.aws/a/b", "/home/me/.gnupg/ring"),
        *("service-account-x.json", ".git-credentials", ".docker/config.json", "x/.gnupg/a", "terraform.tfstate"),
    ],
)
def test_files_that_may_hold_secrets(path: str) -> None:
    assert holds_secrets(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        "env.py",
        "secrets.py",
        "core/secrets.py",
        "keys.md",
        "id_rsa.pub",
        "id_rsa_work.pub",
        "id_rsa_test.py",
        "example.env",
        ".env-example",
        "a.tfvars.example",
        "variables.tf",
        "ansible/hosts.yml",
        "auth.py",
        "oauth.json",
        "key.pem.md",
        "kubeconfig.go",
        "config.json",
        "monkey",
        "a.environment",
    ],
)
def test_files_that_do_not(path: str) -> None:
    assert not holds_secrets(path)


@given(st.text(st.sampled_from("-BEGIN PRVTKYsk_eyJ.:/@a1\n"), max_size=300))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = masked(text)
    assert masked(once) == once
