"""Which hook files are enroot's own: their contents by digest.

A file in `hooks.d` that is one of these, unchanged, runs built in; any other content is executed.
Data only: SHA-256 of the files that each release of enroot installs, from its public repository.
20-autorc.sh of enroot 1 and 2 is left out: no later release has it, so it is executed.
"""

from __future__ import annotations

ORIGINALS: dict[str, tuple[str, ...]] = {
    "aptfix": (
        "20c236b5fb902e86cfe4e94dd39f18798ff5cf8b7d458f9e022e08f341e619f4",  # 3.3.0 to 3.4.0
        "c99f3925d06bc4de393d5affbffd132ecbcc07b3fbd545508ac7b732ef8a2472",  # 3.4.1 to 8ea147d
    ),
    "cgroups": (
        "52494ca9d421aa13a12759e322771880bb18a9b6920b1d11261cd8cee48f0541",  # 1.0.0 to 2.0.0
        "2977ec7fafe42ece137f9afe8eb96cdee0c81ed56bd246ab70dd86b1ece4f306",  # 2.0.1 to 2.2.0
        "3ab99a74129fc0ed9e0644b71df2012fb5e2041c68de766f59d7b3f50290cbcf",  # 3.0.0 to 3.2.0
        "2067a5cffbf0307dc03724ac28f180f6d41e24e9798c7a8f3ddbfa9a23c4c1c5",  # 3.3.0
        "2f20375c1e01022fcd45f818afa20c9c376a193aae8616ddc9e3cbbef848f093",  # 3.3.1 to 3.4.0
        "8b16dd31566c4c4b003ab08137d2ad735e544a4b676904caf38519a9c911da0b",  # 3.4.1
        "da4abae069cedff1989db8bd61f64290f246b51b71ab81f26b35be56746bc758",  # 3.5.0 to 8ea147d
    ),
    "devices": (
        "3190b4ddb1100c6f880d7db047fc94d9f645501413489c4e5fe52796218ec66b",  # 1.0.0 to 2.0.0
        "55dc7fd59e0429a1e11079c4feb2c5f6c12df8bddfa3f90bc56ea653a69dbf61",  # 2.0.1 to 2.1.0
        "19b860ae0e19dfc236ca1af80b720980b51ddcfb20b0fb6063201d3df5bbe7c6",  # 2.2.0
        "b6ea2f3ef5b3cab43d58148ac20f11ba4a80eaa868d469b5f9fe51dbf34f9bdb",  # 3.0.0 to 3.2.0
        "5d7fba3e7e35ee8a17f367fa73a9c5ee412016a7d7570ef1a4985c6ae5e26cc4",  # 3.3.0 to 3.4.0
        "0b20811827c8dce9d8c0b62c52ada15065933b4f9843affcf178c0fd890b25b5",  # 3.4.1 to 4.1.2
        "45c63ea658e548df43133f7b60d2ec52a8ccc0ac869a64ca4cd6324f4477e60e",  # 8ea147d
    ),
    "home": (
        "16d72109231d0d47694d4cbef39a40797f0dd9ed9459a7ca086ebb241ad42da0",  # 1.0.0 to 1.1.0
        "078e6cf5bc0a2f07ce814f142e4a14334b0500e7837ae70ffc1992d89f358fa5",  # 2.0.0
        "288b22f2d0b27da10f03512bf8fdb6605dc29e3f1f7612f1d4c7d45a7e911bf4",  # 2.0.1 to 2.2.0
        "d8faf0fff0fbfe8800aafb75c10ce2deaf282565b369055f67262b2568ea030a",  # 3.0.0 to 3.2.0
        "7d5896df9d99ab65c577a0ed11986fcb80a5b96af7e1adc0ade6df9011e1cdd7",  # 3.3.0 to 3.4.0
        "8a23a5a394e121ba93103ffafa630885cf9988317b7c0016910ad555e1c7725d",  # 3.4.1 to 8ea147d
    ),
    "localtime": (
        "ab460cde3f3b54294cb9b447464077ae1e27829117434b0c9bc98e7660b5cdc5",  # 3.5.0 to 8ea147d
    ),
    "mellanox": (
        "094b569ab381688a26bbb3ae26712b0940abc758d3232ad38187cb466f9faf70",  # 1.1.0
        "ab50a058ae6800e76e522d66d82ac5e1898798593786b5fb80d4e406ec6c185f",  # 2.0.0 to 2.0.1
        "63167139b526b67df8eae4fe5352a7582f6dc71cc54eaf430fee3b6b53b282be",  # 2.1.0
        "32ac84f405cfb0c7b40cb68e42f0bd3ba930015c3cf9108b499794fba8a70bd7",  # 2.2.0
        "037bfe4f8dee82a65969c07b0894c04033ea70a47865bff3e1b73edd4475bb4a",  # 3.0.0 to 3.0.2
        "f4065e408c7bb38de7f343ac91b157a3237967c77c84621192a03a25b865310b",  # 3.1.0
        "b6930ef2d8565b6f36ab53c510443ca064020c6ceaeacd3c4d1452e0bbe2743d",  # 3.1.1 to 3.2.0
        "54301e66fd3467f59fb6655b716f9680a973dd20a0bf4b2aa67753a66ce5f335",  # 3.3.0 to 3.4.0
        "f36ef3b03ac26a73823eed7509a5e65d76e3c85147a60e615aa890eb421efdcc",  # 3.4.1 to 3.5.0
        "43bd5509a3fd1e2c2d8cd427135a91bba4164ba97094eee0ea4ac5701ff9273f",  # 4.0.0 to 8ea147d
    ),
    "mig-config": (
        "2d0faf2d9888b273ae4089914e6d80c82dd4146e1a3fcd1ca981d576d68f0c90",  # 3.3.0
        "7a783af18c27668d5540e0ab740d52be40dcc37158b59b8b55efd6b35975ce6b",  # 3.3.1 to 3.4.0
        "a641f4ecea935c4d18b4031b9e3f67b7874c11e8d0e80cace62bba4782a4eacd",  # 3.4.1 to 8ea147d
    ),
    "nvidia": (
        "8f97dceab29402d8b7d72c036fbd88875f502f74a4b33d2130ba8dd77eba446e",  # 1.0.0
        "83ec14615e59514d2a5d0ba18a4fc8c63e770b081b530e72846622abb9381342",  # 1.1.0
        "3c8618bdf3f6209ead7e1c1fd1c8b82e4bc002759e53ddf536d4860a888f9185",  # 2.0.0
        "8a3d1f415846cbfc8a084f9c8a18bb851e1c1013adca114723e5610311468f8b",  # 2.0.1
        "f64530447ac52c0a13df5fb420d72de05786d8e03f482d636c5822a7b4105329",  # 2.1.0 to 2.2.0
        "a551248dfa35c0f060f5baed65355731eba68a9a187161a82d42fa236896cc04",  # 3.0.0
        "48b4ecb6aca37084793fa4be87f39c010efa7fd186a6fdfe39c5c7b686807ba5",  # 3.0.1 to 3.1.1
        "0505de76f2953edb37330092c458024f7d9dcc59cd1fad8a64c2d9a9427425f6",  # 3.2.0
        "0dd026c7c7899b8d6265d67d22d1f15b79b10380fcaf65fc38decd1f9eedc1ed",  # 3.3.0 to 3.4.0
        "d453e8d69e1dd3ee00f0302b7f3d2294d24d9d78e8a1d407c5bd6b8ed70072b9",  # 3.4.1 to 3.5.0
        "91db82ae029858eed988b76aa28835a609801a1ff131e25e1bbc1e0402d8cd7d",  # 4.0.0 to 8ea147d
    ),
    "shadow": (
        "4f927ea3c9dbe9141a37eb88340f52a8c17d705ac0b52582ce01a5ad6f1bdf74",  # 1.0.0
        "f068f187ca06812c7b6663182e47e9a4afbcfb595ff9f1fa9ce6e27926814c5c",  # 1.1.0
        "1caaca3032eaf5e972e4393bec9a8c94b582b2667b58c02b5376cdae49c66eab",  # 2.0.0
        "0934ba4bf2f73428c4970d3c166f050f84138640cb30f232af0a5491162dcf97",  # 2.0.1 to 2.2.0
        "c76932b410f4f407a2b79e4d1397e62e4020e431edab2007aff411624cb501b0",  # 3.0.0 to 3.2.0
        "3cd7ed37f64831658c5f21c7da055e4695b9060c0ad07e6453ad1ca67d617843",  # 3.3.0 to 3.4.0
        "d82843f7ed80a97ead9d91ece9a45edc722dabfbc74a03a04754328c13586fcb",  # 3.4.1 to 8ea147d
    ),
    "sharp": (
        "082b08d0177838c167dd3f7a40b8d00e79cdef84b7159fb6d2773fb04bbf7da1",  # 3.3.0 to 3.4.0
        "a557d83945fa8da143b6117aa3bca4a8187d8251b66f9a90e14966efc1477589",  # 3.4.1 to 3.5.0
        "e05100e6166076e270442250739447784dc65d842c47e0a72168a9baaed36f21",  # 4.0.0 to 8ea147d
    ),
    "slurm-pmi": (
        "9441704a26b3ee13712bec06ae46f9e435c46bffbefc98d509d83e62f19afbd9",  # 1.1.0
        "0837769f5b4d90ca0630c1f660dd2ae3f06363f1151025d13f9cda80636c30ff",  # 2.0.0
        "6d47e302a0d1fc3b8f8ea9e7ce4d42afb7286f50ee6023d5bedda16e4d91269a",  # 2.0.1 to 2.2.0
        "0a7b31d525fc8a337f6a60f4bfa93895e7512915ddbf7c029789f41c60371db8",  # 3.0.0 to 3.1.0
        "49c6ec80cc389286c03bc2a8a666377ffee2c293f1a61745ffc8830842c01d41",  # 3.1.1 to 3.2.0
        "f7512738c7cd1db74bd8784537c3915641968ac5d9d40c62fc1096e502fc80e8",  # 3.3.0 to 3.4.0
        "7ae54f34101b45f60d78798923279787268dace59efce52fa9088d9a9d47dc3a",  # 3.4.1 to 4.1.2
        "aaf285d581d732d21f76b8752976dd7779335e35656808af689ec4af40042f68",  # 8ea147d
    ),
    "slurm-pytorch": (
        "3ab7d78655becb7ed8558dabe7da4691ac74f99671322d638f6ce5083d0ce6c6",  # 2.0.1 to 2.2.0
        "c81d77606b2413ce4b1031c5e743da7445ea933beac2c67c769b3909f6d3fb16",  # 3.0.0 to 3.1.0
        "adfd3c6e793a95ec5f62181504fbd6cb00b330d57f3cd631504444d13c82572a",  # 3.1.1 to 3.2.0
        "bd61f00a014e3ab7f05eaec150412e22bbb7c5081ba62e775f108daf9f451291",  # 3.3.0
        "dc3796cd1ff7ebb3c3c3a52c66bf3306babc5d3c64d262d067c920b1ff7a8cdf",  # 3.3.1
        "225075326aa2331e2b64ae6c2b4bc781f65938c309aabdc626ecda67f532c5e4",  # 3.4.0
        "0973e0c34a6ab80d8f9fc14d7cd3a013b6c091f28a921c96828981ce37bdc95f",  # 3.4.1
        "ab868bfe4954745d35db79f934aa557c9003e99df9ae1ae003605a02473ea9bd",  # 3.5.0
        "3118afb2b7743eaaafb7e3a59a9459a8bd4e55a93217bd5b0c571ce9729d227d",  # 4.0.0 to 8ea147d
    ),
}
"""Built-in hook: the contents that it stands for, with the releases that installed them."""

LARGEST = 7998
"""Bytes of the largest of those files: a larger one is foreign and need not be read."""


def identify(digest: str) -> str:
    """Return the built-in hook that a file of this SHA-256 stands for; "" for a foreign file."""
    for name, digests in ORIGINALS.items():
        if digest in digests:
            return name
    return ""
