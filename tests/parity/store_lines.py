"""Command lines about images and root filesystems at rest."""

from __future__ import annotations

from tests.parity.step import Scenario, step

IMPORT = Scenario(
    "import",
    (
        step("default name", "import", "docker://${REG}#t/app:1", tree="names work"),
        step("again over the image", "import", "docker://${REG}#t/app:1"),
        step("docker's spelling", "import", "docker://${REG}/t/entry:v1.0-rc_2", tree="names work"),
        step("no tag", "import", "docker://${REG}#t/app", tree="names work"),
        step("library", "import", "docker://${REG}/library/solo", tree="names work"),
        step("by digest", "import", "docker://${REG}#t/bare@${DIGEST_bare}", tree="names work"),
        step(
            "tag and digest", "import", "-o", "both.sqsh",
            "docker://${REG}#t/bare:nosuch@${DIGEST_bare}", tree="image work/both.sqsh",
        ),
        step("-o", "import", "-o", "sub/o.sqsh", "docker://${REG}#t/bare:1", tree="names work/sub"),
        step("--output", "import", "--output", "o2.sqsh", "docker://${REG}#t/bare:1"),
        step("--output=", "import", "--output=o3.sqsh", "--", "docker://${REG}#t/bare:1"),
        step("-o in no folder", "import", "-o", "no/such/o.sqsh", "docker://${REG}#t/bare:1"),
        step("missing tag", "import", "docker://${REG}#t/app:nosuch"),
        step("missing repository", "import", "docker://${REG}#t/nosuch:1"),
        step("missing digest", "import", "docker://${REG}#t/app@sha256:" + "0" * 64),
        step("no registry there", "import", "docker://127.0.0.1:1#t/app:1"),
        step("no scheme", "import", "t/app:1"),
        step("unknown scheme", "import", "http://${REG}/t/app:1"),
        step("no image", "import", "docker://"),
        step("capitals", "import", "docker://${REG}#t/App:1"),
        step("empty", "import", ""),
        step("what is left", "list", tree="names work"),
    ),
    files={"work/sub/": ""},
)  # fmt: skip

PLATFORMS = Scenario(
    "platforms",
    (
        step(
            "host's", "import", "-o", "x.sqsh", "docker://${REG}#t/idx:1",
            tree="image work/x.sqsh",
        ),
        step(
            "-a", "import", "-a", "aarch64", "-o", "a.sqsh", "docker://${REG}#t/idx:1",
            tree="image work/a.sqsh",
        ),
        step("--arch=", "import", "--arch=x86_64", "--output=y.sqsh", "docker://${REG}#t/idx:1"),
        step("not in the index", "import", "-a", "ppc64le", "docker://${REG}#t/idx:1"),
        step("unknown", "import", "-a", "pdp11", "docker://${REG}#t/idx:1"),
        step("in Go's words", "import", "-a", "arm64", "docker://${REG}#t/idx:1"),
        step(
            "of one image alone", "import", "-a", "aarch64", "-o", "w.sqsh",
            "docker://${REG}#t/bare:1",
        ),
        step("digest", "digest", "docker://${REG}#t/app:1"),
        step("digest, no tag", "digest", "docker://${REG}/t/app"),
        step("digest of an index", "digest", "docker://${REG}#t/idx:1"),
        step("digest -a", "digest", "-a", "aarch64", "docker://${REG}#t/idx:1"),
        step("digest --arch=", "digest", "--arch=aarch64", "--", "docker://${REG}#t/idx:1"),
        step("digest by digest", "digest", "docker://${REG}#t/bare@${DIGEST_bare}"),
        step("digest of a missing tag", "digest", "docker://${REG}#t/app:nosuch"),
        step("digest of no reference", "digest", "t/app"),
        step("digest of another scheme", "digest", "dockerd://t/app"),
    ),
)  # fmt: skip

TREES = Scenario(
    "trees",
    (
        step("app image", "create", "-n", "app", "${IMAGES}/app.sqsh", tree="container app"),
        step("layers", "create", "${IMAGES}/layers.sqsh", tree="container layers"),
        step("modes", "create", "${IMAGES}/modes.sqsh", tree="container modes"),
        step("modes again", "export", "-o", "modes.sqsh", "modes", tree="image work/modes.sqsh"),
        step("load layers", "load", "-n", "l2", "docker://${REG}#t/layers:1", tree="container l2"),
        step("load modes", "load", "-n", "m2", "docker://${REG}#t/modes:1", tree="container m2"),
        step("remove them", "remove", "-f", "layers", "modes", "m2", "l2"),
        step("one is left", "list"),
    ),
)

IMAGE_TREES = Scenario(
    "image trees",
    tuple(
        step(
            name, "import", "-o", f"{name}.sqsh", f"docker://${{REG}}#t/{name}:1",
            tree=f"image work/{name}.sqsh",
        )
        for name in ("app", "layers", "modes")
    ),
)  # fmt: skip

CREATE = Scenario(
    "create",
    (
        step("list of nothing", "list"),
        step("list -f of nothing", "list", "-f", look="table"),
        step("default name", "create", "${IMAGES}/bare.sqsh"),
        step("default name, other suffix", "create", "image.img"),
        step("-n", "create", "-n", "one", "${IMAGES}/bare.sqsh"),
        step("--name", "create", "--name", "two", "${IMAGES}/bare.sqsh"),
        step("--name=", "create", "--name=three", "--", "${IMAGES}/bare.sqsh"),
        step("list", "list"),
        step("existing", "create", "-n", "one", "${IMAGES}/bare.sqsh"),
        step(
            "existing, -f", "create", "-f", "-n", "one", "${IMAGES}/app.sqsh",
            tree="names data/one",
        ),
        step(
            "existing, by variable", "create", "-n", "one", "${IMAGES}/bare.sqsh",
            environ={"ENROOT_FORCE_OVERRIDE": "y"}, tree="container one",
        ),
        step("--force of nothing", "create", "--force", "--name=four", "${IMAGES}/bare.sqsh"),
        step("missing image", "create", "nosuch.sqsh"),
        step("no image", "create", "text"),
        step("folder", "create", "folder"),
        step("empty name of an image", "create", ""),
        step("slash in the name", "create", "-n", "a/b", "${IMAGES}/bare.sqsh"),
        step("dot-dot", "create", "-n", "..", "${IMAGES}/bare.sqsh"),
        step("list at the end", "list"),
        step("list -f", "list", "-f", look="table"),
        step("list --fancy", "list", "--fancy", look="table"),
        step("remove, no", "remove", "one", answer="n\n"),
        step("remove, nothing said", "remove", "one", answer="\n"),
        step("remove, end of input", "remove", "one"),
        step("remove, yes in full", "remove", "one", answer="yes\n"),
        step("still there", "list"),
        step("remove, y", "remove", "one", answer="y\n"),
        step("remove, Y", "remove", "two", answer="Y\n"),
        step("remove -f", "remove", "-f", "three", "four"),
        step("remove by variable", "remove", "bare", environ={"ENROOT_FORCE_OVERRIDE": "yes"}),
        step("remove missing", "remove", "-f", "nosuch"),
        step("remove with a slash", "remove", "-f", "../x"),
        step("remove of empty name", "remove", "-f", ""),
        step("remove, one of them missing", "remove", "-f", "nosuch", "image.img"),
        step("what is left", "list"),
    ),
    files={"work/text": "not an image\n", "work/folder/": ""},
)  # fmt: skip

NAMES = Scenario(
    "names",
    (
        step("signs", "create", "-n", "A+b=c:d@e,f~g_h-i.j", "${IMAGES}/bare.sqsh"),
        step("a dot first", "create", "-n", ".hidden", "${IMAGES}/bare.sqsh"),
        step("list", "list"),
        step("list -f", "list", "-f", look="table"),
        step("start", "start", "A+b=c:d@e,f~g_h-i.j"),
        step("a blank", "create", "-n", "a b", "${IMAGES}/bare.sqsh"),
        step("not ASCII", "create", "-n", "é", "${IMAGES}/bare.sqsh"),
        step("a dash first", "create", "-n", "-x", "${IMAGES}/bare.sqsh"),
        step("remove", "remove", "--force", "--", "A+b=c:d@e,f~g_h-i.j"),
    ),
)

LOAD = Scenario(
    "load",
    (
        step("default name", "load", "docker://${REG}#t/bare:1", tree="container t+bare+1"),
        step("no tag", "load", "docker://${REG}/t/app"),
        step("-n", "load", "-n", "one", "docker://${REG}#t/bare:1"),
        step("--name=", "load", "--name=two", "--arch=x86_64", "--", "docker://${REG}#t/bare:1"),
        step("existing", "load", "-n", "one", "docker://${REG}#t/bare:1"),
        step("existing, -f", "load", "-f", "-n", "one", "docker://${REG}#t/bare:1"),
        step("slash", "load", "-n", "a/b", "docker://${REG}#t/bare:1"),
        step("missing", "load", "docker://${REG}#t/nosuch:1"),
        step("no scheme", "load", "t/bare"),
        step("list", "list"),
    ),
)

EXPORT = Scenario(
    "export",
    (
        step("default name", "export", "app", tree="image work/app.sqsh"),
        step("existing", "export", "app"),
        step("existing, -f", "export", "-f", "app"),
        step("existing, by variable", "export", "app", environ={"ENROOT_FORCE_OVERRIDE": "1"}),
        step("-o", "export", "-o", "o.sqsh", "app"),
        step("--output=", "export", "--output=o2.sqsh", "--", "app"),
        step("in no folder", "export", "-o", "no/such.sqsh", "app"),
        step("missing", "export", "nosuch"),
        step("slash", "export", "x/app"),
        step("empty", "export", ""),
        step("what is there", "create", "-n", "again", "o.sqsh", tree="container again"),
        step("what is left", "list", tree="names work"),
        step("bundle of nothing there", "bundle", "nosuch.sqsh"),
        step("bundle of no image", "bundle", "text"),
        step("bundle over a file", "bundle", "-o", "text", "o.sqsh"),
    ),
    containers={"app": "bare"},
    files={"work/text": "not an image\n"},
)

SETTINGS = Scenario(
    "settings",
    (
        step("no and its kin", "info", look="variables", environ={
            f"ENROOT_{letter}": value for letter, value in zip(
                "ABCDEFGHIJKLMNOP",
                ("n", "no", "N", "NO", "No", "nO", "f", "false", "F", "False", "FALSE", "fALSE",
                 "0", "off", "yes", "n "),
                strict=True,
            )
        }),
        step("create elsewhere", "create", "-n", "one", "${IMAGES}/bare.sqsh",
             environ={"ENROOT_DATA_PATH": "${ROOT}/other"}, tree="names other"),
        step("list elsewhere", "list", environ={"ENROOT_DATA_PATH": "${ROOT}/other"}),
        step("list here", "list"),
        step("XDG_DATA_HOME", "create", "-n", "two", "${IMAGES}/bare.sqsh",
             environ={"XDG_DATA_HOME": "${ROOT}/xdg"}, tree="names xdg/enroot"),
        step("gzip", "export", "-o", "gzip.sqsh", "app", tree="image work/gzip.sqsh",
             environ={"ENROOT_SQUASH_OPTIONS": "-comp gzip -b 65536"}),
        step("no compression", "export", "-o", "plain.sqsh", "app", tree="image work/plain.sqsh",
             environ={"ENROOT_SQUASH_OPTIONS": "-noI -noD -noF -noX"}),
        step("made from gzip", "create", "-n", "three", "gzip.sqsh", tree="container three"),
        step("no HTTP", "import", "docker://${REG}#t/bare:1", environ={"ENROOT_ALLOW_HTTP": "no"}),
        step("no override", "create", "-n", "app", "${IMAGES}/bare.sqsh",
             environ={"ENROOT_FORCE_OVERRIDE": "no"}),
        step("no home", "list", environ={"HOME": "", "XDG_DATA_HOME": "${ROOT}/xdg",
                                         "XDG_CACHE_HOME": "${ROOT}/xdg"}),
    ),
    containers={"app": "bare"},
    files={"xdg/": ""},
)  # fmt: skip

TAKEN_OVER = Scenario(
    "taken over",
    (
        step("list", "list"),
        step("export", "export", "-o", "x.sqsh", "a b", tree="image work/x.sqsh"),
        step("start", "start", "é", "true"),
        step("remove", "remove", "-f", "a b", "é"),
        step("remove a file", "remove", "-f", "a file"),
        step("list at the end", "list"),
    ),
    files={
        "home/.local/share/enroot/a b/etc/f": "text",
        "home/.local/share/enroot/é/etc/f": "text",
        "home/.local/share/enroot/a file": "text",
        "home/.local/share/enroot/usual/": "",
    },
)

SCENARIOS = (
    IMPORT,
    PLATFORMS,
    TREES,
    IMAGE_TREES,
    CREATE,
    NAMES,
    LOAD,
    EXPORT,
    SETTINGS,
    TAKEN_OVER,
)
