"""Public names: each leads back to one server and tool, whatever their names are."""

import hashlib
import re
import string
from random import Random

import pytest
from hypothesis import given, strategies

from rookery.gateway.names import (
    BARE,
    MAX_LENGTH,
    NamingStyle,
    OwnedName,
    Prefix,
    gateway_name,
    make_public_names,
    make_public_uris,
    uri_scheme,
)
from tests.support.requirements import requirement

ALWAYS = NamingStyle()
FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")

# Short texts over few characters clash often; the others are what servers in the world send, and worse.
NAMES = strategies.one_of(
    strategies.text("ab_.", min_size=1, max_size=4),
    strategies.text("_", min_size=1, max_size=5),
    strategies.text(min_size=1, max_size=80),
    strategies.text(string.ascii_lowercase, min_size=60, max_size=200),
    strategies.sampled_from(
        ["__proto__", "../x", "read_file", "Read_File", "rеad_file", "🙂", " ", "a\0b", "constructor"]
    ),
)
OFFERED = strategies.lists(strategies.builds(OwnedName, NAMES, NAMES), max_size=12, unique=True)
STYLES = strategies.builds(
    NamingStyle, strategies.sampled_from(["always", "conflict", "never"]), strategies.sampled_from(["__", "_"])
)


def back(named: dict[str, OwnedName]) -> dict[OwnedName, str]:
    found = {one: name for name, one in named.items()}
    assert len(found) == len(named)
    return found


def mark(owner: str, name: str) -> str:
    return hashlib.sha256(f"{owner}\0{name}".encode()).hexdigest()[:8]


@requirement("hub.name.unique")
@given(OFFERED, STYLES)
def test_c12_every_tool_has_a_name_of_its_own_that_clients_take(offered: list[OwnedName], style: NamingStyle) -> None:
    named = make_public_names(offered, style)
    assert back(named).keys() == set(offered)
    assert all(FIT.fullmatch(name) for name in named)


@requirement("hub.name.unique")
@given(OFFERED, OFFERED)
def test_c12_names_stay_when_servers_come_and_go(here: list[OwnedName], others: list[OwnedName]) -> None:
    owners = {one.owner for one in here}
    more = [one for one in others if one.owner not in owners]
    before, after = back(make_public_names(here, ALWAYS)), back(make_public_names([*more, *here], ALWAYS))
    assert {one: after[one] for one in here} == before
    uris, later = back(make_public_uris(here, ALWAYS)), back(make_public_uris([*more, *here], ALWAYS))
    assert {one: later[one] for one in here} == uris


@requirement("hub.name.unique")
@given(OFFERED, strategies.randoms())
def test_c12_names_do_not_depend_on_the_order_in_which_servers_are_met(
    offered: list[OwnedName], chance: Random
) -> None:
    shuffled = list(offered)
    chance.shuffle(shuffled)
    for style in (ALWAYS, NamingStyle("conflict"), NamingStyle("never"), NamingStyle(separator="_")):
        assert make_public_names(shuffled, style) == make_public_names(offered, style)


@requirement("hub.name.unique")
@given(OFFERED, STYLES)
def test_c12_every_resource_has_a_uri_of_its_own(offered: list[OwnedName], style: NamingStyle) -> None:
    assert back(make_public_uris(offered, style)).keys() == set(offered)


@requirement("hub.name.unique")
@given(strategies.lists(NAMES, unique=True))
def test_c12_no_two_servers_have_one_scheme(owners: list[str]) -> None:
    schemes = [uri_scheme(owner) for owner in owners]
    assert len(set(schemes)) == len(owners)
    assert all(re.fullmatch(r"[a-z][a-z0-9.-]*\+", scheme) for scheme in schemes)
    assert not any(one != other and one.startswith(other) for one in schemes for other in schemes)


@requirement("hub.name.default")
@pytest.mark.parametrize(
    ("owner", "name", "public"),
    [
        ("github", "create_issue", "github__create_issue"),
        ("a", "b__c", "a__b__c"),
        ("a__b", "c", f"a__b__c_{mark('a__b', 'c')}"),
        ("a_", "b", f"a___b_{mark('a_', 'b')}"),
        ("a", "_b", "a___b"),
        ("my server", "x", f"my_server__x_{mark('my server', 'x')}"),
        ("fs", "../x", f"fs_____x_{mark('fs', '../x')}"),
        ("fs", "🙂", f"fs____{mark('fs', '🙂')}"),
        ("__proto__", "x", f"__proto____x_{mark('__proto__', 'x')}"),
        ("s", "t" * 61, "s__" + "t" * 61),
        ("s", "t" * 62, "s__" + "t" * 52 + "_" + mark("s", "t" * 62)),
    ],
)
def test_c12_a_tool_name_has_its_server_as_prefix_and_a_mark_where_ambiguous(
    owner: str, name: str, public: str
) -> None:
    assert list(make_public_names([OwnedName(owner, name)], ALWAYS)) == [public]
    assert gateway_name(owner, name) == public
    assert len(public) <= MAX_LENGTH


@requirement("hub.name.unique")
@pytest.mark.parametrize("prefix", ["always", "conflict", "never"])
@pytest.mark.parametrize("separator", ["__", "_"])
def test_c12_nobody_can_take_a_name_that_was_marked_for_another(prefix: Prefix, separator: str) -> None:
    style = NamingStyle(prefix, "__" if separator == "__" else "_")
    for victim in (OwnedName("my server", "x"), OwnedName("a", "t" * 100), OwnedName("a.b", "c")):
        taken = next(iter(make_public_names([victim], style)))
        # Whatever way there is to cut the name in two, somebody offers just that.
        squatters = [
            OwnedName(owner, name)
            for cut in range(1, len(taken))
            for owner, name in ((taken[:cut], taken[cut:]), (taken[:cut], taken[cut:].lstrip("_")), ("squatter", taken))
            if name
        ]
        offered = list(dict.fromkeys([*squatters, victim]))
        named = make_public_names(offered, style)
        assert back(named).keys() == set(offered)
        if prefix == "always" and separator == "__":
            assert named[taken] == victim


@requirement("hub.name.unique")
def test_c12_nobody_can_take_the_scheme_of_another() -> None:
    for victim in ("My Server", "a+b", "1st", "🙂"):
        taken = uri_scheme(victim).rstrip("+")
        assert uri_scheme(taken) != uri_scheme(victim)


@requirement("hub.name.unique")
def test_c12_what_is_ours_keeps_its_name_whoever_else_wants_it() -> None:
    ours = OwnedName("hub", "hub_list_servers", is_builtin=True)
    theirs = [
        OwnedName("hub", "hub_list_servers"),
        OwnedName("hub", "list_servers"),
        OwnedName("x", "hub_list_servers"),
    ]
    for prefix in ("always", "conflict", "never"):
        for separator in ("__", "_"):
            named = make_public_names([*theirs, ours], NamingStyle(prefix, separator))
            assert named["hub_list_servers"] is ours
            assert back(named).keys() == {ours, *theirs}


@requirement("hub.name.parity")
@given(OFFERED)
def test_names_for_opencode_are_opencodes_own_unless_two_tools_would_share_one(
    offered: list[OwnedName],
) -> None:
    # seeds/3: client.replace(/[^a-zA-Z0-9_-]/g, "_") + "_" + tool.replace(/[^a-zA-Z0-9_-]/g, "_")
    def theirs(one: OwnedName) -> str:
        return "_".join(re.sub(r"[^a-zA-Z0-9_-]", "_", part) for part in (one.owner, one.name))

    wanted = [theirs(one) for one in offered]
    found = back(make_public_names(offered, NamingStyle(separator="_")))
    for one in offered:
        if (
            len(theirs(one)) <= MAX_LENGTH
            and wanted.count(theirs(one)) == 1
            and theirs(one) not in set(found.values()) - {found[one]}
        ):
            assert found[one] == theirs(one)


@requirement("hub.name.parity")
def test_the_examples_of_opencode_have_their_names() -> None:
    offered = [
        OwnedName("filesystem", "read_file"),
        OwnedName("remote.api", "get_user"),
        OwnedName("remote-api", "get_user"),
    ]
    names = ["filesystem_read_file", "remote_api_get_user", "remote-api_get_user"]
    assert back(make_public_names(offered, NamingStyle(separator="_"))) == dict(zip(offered, names, strict=True))


@requirement("hub.name.unique")
def test_a_prefix_only_where_names_clash_is_left_out_where_they_do_not() -> None:
    offered = [OwnedName("a", "read"), OwnedName("b", "read"), OwnedName("b", "write")]
    assert set(make_public_names(offered, NamingStyle("conflict"))) == {"a__read", "b__read", "write"}
    assert set(make_public_names(offered[1:], NamingStyle("conflict"))) == {"read", "write"}


@requirement("hub.name.unique")
def test_without_prefixes_a_clash_is_still_told_apart() -> None:
    offered = [OwnedName("a", "read"), OwnedName("b", "read"), OwnedName("b", "write")]
    named = make_public_names(offered, NamingStyle("never"))
    assert back(named).keys() == set(offered)
    assert named["write"] == OwnedName("b", "write")


@requirement("hub.name.unique")
@given(strategies.lists(NAMES, unique=True, min_size=1))
def test_a_view_of_one_server_has_the_names_as_they_are(names: list[str]) -> None:
    offered = [OwnedName("one", name) for name in names]
    assert {name: one.name for name, one in make_public_names(offered, BARE).items()} == {name: name for name in names}
    assert {name: one.name for name, one in make_public_uris(offered, BARE).items()} == {name: name for name in names}
