"""What secrets look like: keys known by their form, and values that a name before them announces.

A pattern is tried only where one of its words stands, and begins with that word, so a text costs some
substring searches. None has a run without bound in front: bad input of any length takes linear time. Words
are found in any case; forms then match only as they are issued.
"""

from __future__ import annotations

#: A quote as it stands in code, in JSON, and in JSON inside a string.
_QUOTE = r"\\{0,8}[\"'`]"

#: A value in quotes up to the same quote, over spaces and escapes; else everything up to white space.
_VALUE = (
    rf"(?:(?P<quote>{_QUOTE})(?:(?!(?P=quote))(?:\\[\s\S]|[^\\])){{1,1024}}(?P<close>(?P=quote))"
    r"|(?P<bare>\S+))"
)

#: What stands between a name and its value: in code, in Markdown (`**Password:** x`), in YAML and XML, in an
#: address, in Chinese and Japanese, over the end of a line.
_SAYS = (
    r"(?:\s{0,80}(?:=>|:=|={1,3}|[:：＝]|%3[ad])(?:\*\*|__)?\s{0,80}(?:\\\r?\n\s{0,80})?"
    r"(?:[|>][+-]?\s{1,80}|![a-z]{1,16}\s{1,8})?|>(?=[^<>\s]{1,512}</))"
)

#: A key does not begin inside a word; it may behind an escape (`\n`, `%3D`) that ends with a letter.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"

#: What a terminal's line break cut off a key: a run with digits and letters on the next line.
_REST = (
    r"(?P<rest>(?:[ \t]{0,80}\\?\r?\n[ \t>|]{0,80}(?=[\w/+=.-]{0,256}\d)(?=[\w/+=.-]{0,256}[A-Za-z])"
    r"[\w/+=.-]{8,})*)"
)

#: A private key: to its end, or as far as it looks like one when its end was cut off.
PEM = (
    "-----begin",
    r"(?P<name>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)"
    r"(?:(?:(?!-----)[\s\S]){0,65536}(?P<close>-----END [A-Z0-9 ]{0,60}-----)|[\w+/=\s\\:,.-]*)",
)

#: (words, the form that begins with one of them).
FORMS = tuple(
    (words, f"{_START}(?P<token>{form}){_REST}")
    for words, form in (
        ("sk-", r"sk-[A-Za-z0-9_-]{8,}"),
        ("sk_ rk_ pk_ whsec_", r"(?:sk|rk|pk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}"),
        ("ghp_ gho_ ghs_ ghu_ ghr_", r"gh[opsur]_[A-Za-z0-9]{20,}"),
        ("github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
        ("glpat- gldt- glrt- glcbt- glptt- glft-", r"gl[a-z]{1,5}-[A-Za-z0-9_-]{16,}"),
        ("xox", r"xox[a-z]-[A-Za-z0-9-]{10,}"),
        ("xapp-", r"xapp-[A-Za-z0-9-]{10,}"),
        ("gsk_", r"gsk_[A-Za-z0-9_-]{10,}"),
        ("aiza", r"AIza[0-9A-Za-z_-]{20,}"),
        ("ya29.", r"ya29\.[0-9A-Za-z_-]{20,}"),
        ("1//0", r"1//0[0-9A-Za-z_-]{20,}"),
        ("gocspx-", r"GOCSPX-[0-9A-Za-z_-]{16,}"),
        ("pplx-", r"pplx-[A-Za-z0-9_-]{10,}"),
        ("xai-", r"xai-[A-Za-z0-9_-]{20,}"),
        ("npm_", r"npm_[A-Za-z0-9]{10,}"),
        ("pypi-", r"pypi-[A-Za-z0-9_-]{16,}"),
        ("dckr_pat_", r"dckr_pat_[A-Za-z0-9_-]{20,}"),
        ("figd_", r"figd_[A-Za-z0-9_-]{20,}"),
        ("sbp_", r"sbp_[0-9a-f]{32,}"),
        ("pmak-", r"PMAK-[0-9A-Za-z-]{20,}"),
        ("atatt3", r"ATATT3[A-Za-z0-9_=-]{20,}"),
        ("rubygems_", r"rubygems_[0-9A-Za-z]{20,}"),
        ("sq0", r"sq0[a-z]{3}-[A-Za-z0-9_-]{20,}"),
        ("hf_", r"hf_[A-Za-z0-9]{20,}"),
        ("r8_", r"r8_[A-Za-z0-9]{20,}"),
        ("nvapi-", r"nvapi-[A-Za-z0-9_-]{20,}"),
        ("jina_", r"jina_[A-Za-z0-9_-]{20,}"),
        ("pa-", r"pa-[A-Za-z0-9_-]{32,}"),
        ("tvly-", r"tvly-[A-Za-z0-9_-]{16,}"),
        ("sg.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
        ("ac sk", r"(?:AC|SK)[0-9a-f]{32}(?![0-9A-Za-z])"),
        ("key-", r"key-[0-9a-f]{32}"),
        ("doo_v1_ dop_v1_ dor_v1_ dot_v1_", r"do[oprt]_v1_[0-9a-f]{32,}"),
        ("shpat_ shpca_ shppa_ shpss_", r"shp[a-z]{2}_[0-9a-fA-F]{20,}"),
        ("dapi", r"dapi[0-9a-f]{32}"),
        ("hvs. hvb. hvr.", r"hv[sbr]\.[A-Za-z0-9_-]{20,}"),
        ("lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{20,}"),
        ("ntn_ secret_", r"(?:ntn|secret)_[A-Za-z0-9]{32,}"),
        ("age-secret-key-", r"AGE-SECRET-KEY-1[0-9A-Z]{20,}"),
        ("akia asia aroa aida abia acca agpa anpa", r"A[A-Z]{3}[A-Z0-9]{12,}"),
        ("eyj", r"eyJ[A-Za-z0-9_=-]{4,}\.[A-Za-z0-9_=-]{8,}(?:\.[A-Za-z0-9_=+/-]*){0,3}"),
    )
)

#: Keys with an open first part: a bot of Telegram is `digits:key`, one of Discord `id.time.key`.
TAILS = (
    (":", r"(?<=\d{6})(?P<name>:)[A-Za-z0-9_-]{20,}"),
    (".", r"(?<=[A-Za-z0-9_-]{23})(?P<name>\.)[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
)

#: (words, name and value). The name stays, the value goes as a whole.
ANNOUNCED = (
    (
        "cookie",
        rf"(?P<name>cookie2?(?:{_QUOTE})?\s{{0,8}}[:=]\s{{0,8}})"
        rf"(?:(?P<quote>{_QUOTE})(?:(?!(?P=quote))(?:\\[\s\S]|[^\\])){{1,8192}}(?P<close>(?P=quote))"
        r"|(?=[^\s=;]{1,128}=)[^\r\n]+)",
    ),
    (
        "authorization",
        rf"(?P<name>authorization(?:{_QUOTE})?\s{{0,8}}[:=]\s{{0,8}}(?:{_QUOTE})?"
        r"(?:(?:bearer|basic|token|digest|apikey|negotiate)\s{1,8})?)[^\s\"'`\\]+",
    ),
    ("bearer", r"(?P<name>\bbearer[\s:]{1,8})(?=\S{0,256}\d|\S{18})[\w.~+/=-]{8,}"),
    (
        # Base64, and so no word: "Basic Installation" has no capital letter inside.
        "basic",
        r"(?P<name>\bbasic\s{1,8})(?=(?-i:[A-Za-z0-9+/]{0,256}(?:[0-9+/=]|[a-z][A-Z])))"
        r"[A-Za-z0-9+/]{12,}={0,2}",
    ),
    # The password of an address, and a key that stands there for the user.
    ("://", r"(?P<name>://[^\s/:@\"'<>]{0,256}:)[^\s\"'<>]{1,512}(?=@)"),
    ("://", r"(?P<name>://)[\w.~%-]{16,512}(?=@)"),
    ("hooks.slack.com/ /api/webhooks/", r"(?P<name>hooks\.slack\.com/[a-z]{1,16}/|/api/webhooks/)[\w/-]{8,}"),
    (
        # Behind any prefix: OPENAI_API_KEY, db_password, clientSecret, "refreshToken".
        "key token secret pass pwd credential signature auth",
        r"(?P<name>(?P<word>key|token|secrets?|pass(?:words?|wd|phrase|code)|pwd|credentials?|signature"
        r"|(?<![a-z])(?:pass|auth))(?:_?(?:base64|b64|hash|value))?"
        rf"(?:{_QUOTE}|\*\*|__)?\]?(?:\s?\([^()\n]{{0,40}}\))?{_SAYS})" + _VALUE,
    ),
    (
        "passwort kennwort passe contraseña senha пароль 密码 密碼 口令 パスワード 비밀번호",
        r"(?P<name>(?:passwort|kennwort|mot de passe|contraseña|senha|пароль|密[码碼]|口令|パスワード"
        rf"|비밀번호)(?:{_QUOTE}|\*\*|__)?(?:{_SAYS}|\s{{0,8}}(?:ist|est|es|é|[是为為は])\s{{0,8}}(?=[!-~]{{0,128}}[0-9])))"
        r"[^\s，。、；！？]+",
    ),
    (
        "--",
        r"(?P<name>--(?:[a-z][a-z0-9-]{0,40}?)?(?:key|token|secret|password|passwd|passphrase|pass|pwd|auth)"
        r"\s{1,8})" + _VALUE,
    ),
    ("sshpass", r"(?P<name>sshpass\s{1,8}-p\s{0,8})" + _VALUE),
    (
        "-u --user",
        rf"(?P<name>(?:(?<=\s)-u|--user)[ =]{{1,8}}(?:{_QUOTE})?[^\s:\"']{{1,128}}:)[^\s\"'`]+",
    ),
    ("login", r"(?P<name>\blogin\s{1,8}\S{1,128}\s{1,8}password\s{1,8})\S+"),
    (
        # In a sentence only what looks like one: "the password is hunter2", not "is required".
        "pass pin pwd secret token api",
        r"(?P<name>\b(?:pass(?:word|phrase|code|wd)|pwd|pin|secret|token|api[ _-]?key)\s{1,8}"
        rf"(?:is|was|to|=|:)(?:\s{{0,8}}:)?\s{{1,8}}(?:{_QUOTE})?)"
        r"(?=\S{0,128}[\d!@#$%^&*])(?=\S{4})[^\s\"'`]+",
    ),
    (
        "sig= pass= code= session= session_id= sid= jwt= hmac= otp=",
        r"(?<=[?&;])(?P<name>(?:sig|pass|code|session(?:_id)?|sid|jwt|hmac|otp)=)[^\s&\"'<>#]+",
    ),
)

#: Words before `key` with which it can be nothing but a secret, whatever stands behind.
SECRET_KEYS = ("api", "access", "secret", "private", "auth", "account", "encryption", "signing", "master")

#: Ends of other words: "turkey: Istanbul".
NO_KEYS = ("tur", "mon", "don", "hoc", "joc", "whis", "mic", "val", "hot", "lac", "smo")

#: Letters of both cases and digits without a form: hidden when one of the words stands closely before, in
#: a table, behind an arrow, on the line below; and a secret of AWS (40 characters) anywhere beside its words.
RUN = r"[A-Za-z0-9/+=_-]{16,}"
RUN_WORDS = (
    *("pass", "pwd", "token", "secret", "key", "credential", "auth", "bearer"),
    *("kennwort", "contraseña", "senha", "пароль", "密码", "密碼", "口令", "パスワード", "비밀번호"),
)
RUN_NEAR_CHARS = 64
AWS_WORDS = ("aws", "akia", "asia", "secret")
AWS_SECRET_CHARS = 40
