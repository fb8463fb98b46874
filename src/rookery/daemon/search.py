"""Views that are searched instead of listed: what of ours they show, and what that costs."""

from rookery.gateway.finding import Sight, shown_by
from rookery.gateway.member import Member
from rookery.toolsets.searching import search_toolset
from rookery.upstreams.costs import tokens_in


def finder(sight: Sight) -> Member:
    return search_toolset(sight.find)


def search_tokens() -> int:
    """What a model has to read of such a view before it has done anything."""
    return tokens_in(shown_by(finder(Sight())))
