"""What a model should not see by accident: keys in texts, files that hold them, variables that carry them.

Not a wall: what only looks like any other text is not recognised. The formats are those that their issuers document.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

__all__ = ["MASK", "Secrets", "holds_secrets", "masked"]

MASK = "[masked secret]"
"""What stands for a key in a text that a model reads."""

_LEAST_VALUE, _MOST_VALUE = 8, 4096
"""The characters of a variable's value that is looked for: a shorter one would be found in every text."""

_KEYS = re.compile(
    r"""(?x)
    -----BEGIN\ (?:[A-Z0-9]+\ ){0,3}PRIVATE\ KEY(?:\ BLOCK)?-----
      (?:[^-]|-(?!----END)){0,20000} (?:-----END\ [A-Z0-9\ ]{1,40}-----)?
    | \b(?: sk-(?=[A-Za-z_-]{0,100}\d)[A-Za-z0-9_-]{20,200}
      | (?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,200}
      | gh[pousr]_[A-Za-z0-9]{30,255} | github_pat_[A-Za-z0-9_]{30,255} | gl(?:pat|ptt|rt)-[A-Za-z0-9_-]{20,100}
      | A[KS]IA[A-Z0-9]{16}\b | AIza[A-Za-z0-9_-]{35} | ya29\.[A-Za-z0-9_-]{20,500}
      | GOCSPX-[A-Za-z0-9_-]{20,60} | xapp-[A-Za-z0-9-]{10,250} | xox[abeoprs]-[A-Za-z0-9-]{10,250} | hf_[A-Za-z0-9]{30,100} | npm_[A-Za-z0-9]{36}
      | pypi-AgE[A-Za-z0-9_-]{50,500} | dop_v1_[a-f0-9]{64} | SG\.[A-Za-z0-9_-]{20,30}\.[A-Za-z0-9_-]{40,50}
      | eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000} )
    | (?<=://)[^\s/:@"'<>]{0,100}:[^\s/:@"'<>]{3,200}(?=@)
    | (?<=://)(?=[^\s/:@]{0,200}\d)[A-Za-z0-9_.~%-]{12,200}(?=@)
    | (?<![A-Za-z0-9+/=_-])(?<!CERTIFICATE-----\n)(?<!REQUEST-----\n)(?<!PUBLIC\ KEY-----\n)
      (?=MII|b3BlbnNzaC1rZXk)[A-Za-z0-9+/]{40,20000}={0,2}(?:\n[A-Za-z0-9+/]{1,128}={0,2}(?=\n|$)){0,400}
    """
)
"""Private keys, tokens of well-known services, JSON web tokens, the name and password of an address (or a token as its name), and
what a private key without its first line begins with (DER, and OpenSSH's own format, in base64)."""

_NAMED = re.compile(
    r"""(?xi)
    ( \bauthorization["']?\s{0,4}[:=]\s{0,4}["']?(?:bearer|basic|token)\s{1,4} (?=\S{0,200}\d)
    | \bsecret_?access_?key["']?\s{0,4}[:=]\s{0,4}["']? (?=[A-Za-z0-9/+]{40})
    | (?<![a-z])aws_secret_?access_?key["']?\s{0,4}[:=]\s{0,4}["']? (?=[A-Za-z0-9/+]{40})
    | \b(?:Account|SharedAccess)Key= (?=[A-Za-z0-9/+]{20})
    | \bhooks\.slack\.com/(?:services|workflows|triggers)/ (?=[A-Za-z0-9/_-]{15})
    ) [A-Za-z0-9._~+/=-]{8,2000}
    """
)
"""What is a key because of what stands before it, which stays."""

_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(r"[A-Za-z0-9+/]{1,128}={0,2}")
"""The last line of a private key, and those before it."""


def masked(text: str, values: Iterable[str] = ()) -> str:
    """The text with a mask for everything that looks like a key, and for each of `values`."""
    for value in values:
        text = text.replace(value, MASK)
    text = _NAMED.sub(rf"\1{MASK}", _KEYS.sub(MASK, text))
    return "\n".join(_without_ends(text.split("\n"))) if _END.search(text) else text


def _without_ends(lines: Iterable[str]) -> list[str]:
    """The lines with a mask for what stands before the end of a private key whose beginning is elsewhere."""
    kept = list[str]()
    for line in lines:
        if _END.match(line.strip()):
            body = len(kept)
            while body and _BODY.fullmatch(kept[body - 1].strip()):
                body -= 1
            kept[body:] = [MASK] if body < len(kept) else []
        kept.append(line)
    return kept


_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|(?<!ASK)(?<!BY)(?<!COM)PASS(?:$|[_\d])|CREDENTIAL|JWT|COOKIE|WEBHOOK|(^|_)(PAT|PWD|AUTH)$",
    re.IGNORECASE,
)
_NO_SECRETS = {"PWD", "OLDPWD", "SSH_AUTH_SOCK"}


@dataclass(frozen=True, slots=True)
class Secrets:
    """What one run hides: variables, by their `names`, and its `own` texts, whatever the variables that hold them are called.

    `values` are all texts that are to be masked, the longest first: the own ones, and those of variables whose names say that
    they hold a secret, each as it stands, as JSON and as an address spell it.
    """

    names: frozenset[str] = frozenset()
    own: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str], names: Collection[str] = (), texts: Iterable[str] = ()) -> Secrets:
        """Those of an environment, the variables of some `names` and some `texts` among them."""
        own = {text.strip() for text in (*texts, *(environment.get(name, "") for name in names))} - {""}
        hidden = own | {value.strip() for name, value in environment.items() if _is_secret(name)}
        spelt = {each for value in hidden if _may_be_looked_for(value) for each in _spellings(value)}
        return cls(frozenset(names), tuple(sorted(own)), tuple(sorted(spelt, key=lambda text: (-len(text), text))))

    def left_of(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables that a program may have."""
        return {name: value for name, value in environment.items() if not self._hides(name, value)}

    def _hides(self, name: str, value: str) -> bool:
        told = any(value.strip() == own or (_may_be_looked_for(own) and own in value) for own in self.own)
        return told or name in self.names or _is_secret(name)


def _may_be_looked_for(value: str) -> bool:
    return _LEAST_VALUE <= len(value) <= _MOST_VALUE


def _spellings(value: str) -> Iterator[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    for kept in ("", "/"):
        yield "".join(
            chr(byte) if chr(byte) in _UNRESERVED + kept else f"%{byte:02X}"
            for byte in value.encode("utf-8", "surrogateescape")
        )


_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
"""What an address may hold as it is (RFC 3986)."""


def _is_secret(name: str) -> bool:
    return name not in _NO_SECRETS and bool(_SECRET_NAME.search(name))


_FILES = re.compile(
    r"""(?x)
    (?:^|.*/) (?:
      \.env(?:rc)? | \.env[._~-](?!(?:example|sample|template|dist)$)[^/]*
      | (?!(?:example|sample|template)\.)[^/]+\.(?:env|tfvars|tfvars\.json)
      | [^/]*\.(?:pem|key|p12|pfx|pkcs12|jks|keystore|kdbx|ppk|tfstate)(?:~|\.(?:bak|backup|old|orig|save))?
      | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:[._~-](?![^/]*\b(?:pub|py|js|ts|go|rs|c|h|md)$)[^/]*)?
      | \.(?:netrc|npmrc|pypirc|pgpass|htpasswd|git-credentials|dockercfg|vault-token|my\.cnf|s3cfg) | _netrc
      | (?:[^/]*[._-])?kubeconfig | auth\.json | gh/hosts\.ya?ml
      | (?:[^/]*[._-])?(?:credentials?|secrets?)(?:\.(?:json|ya?ml|toml|ini|txt|cfg|env|xml))?
      | service[-_]account[^/]*\.json
      | \.(?:ssh|gnupg|aws|azure|kube)/.* | \.docker/config\.json | \.config/gcloud/.*
    )$"""
)


def holds_secrets(path: str) -> bool:
    """Whether a file probably holds secrets, by its whole path; whatever the case of its letters, which some systems ignore."""
    return bool(_FILES.match(path.casefold()))
