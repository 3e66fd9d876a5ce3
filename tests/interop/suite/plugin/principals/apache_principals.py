"""Builders of principals that stand for Java classes of Apache Kafka's tests: entry points of their names."""

import re
from collections.abc import Mapping
from typing import ClassVar

from ottla.broker.guard.plugin import AuthenticationContext


class ByListener:
    """Each listener has one principal."""

    principals: ClassVar[Mapping[str, str]] = {"CLIENT": "User:client"}
    others: ClassVar[str] = "User:broker"

    def __init__(self, settings: dict[str, str]) -> None:
        assert settings

    def build(self, context: AuthenticationContext) -> str:
        return self.principals.get(context.listener, self.others)


class Client(ByListener):
    """Who comes in is User:client."""

    others = "User:client"


class Server(ByListener):
    """Who comes in is User:server."""

    principals: ClassVar[Mapping[str, str]] = {}
    others = "User:server"


class GroupOfUser(ByListener):
    """A group of each user; that of one has another name."""

    def build(self, context: AuthenticationContext) -> str:
        user = context.principal.removeprefix("User:")
        return "Group:testGroup" if user == "scram-user" else f"Group:{user}"


class ByCertificate(ByListener):
    """A short name for servers, the whole subject for clients."""

    _subject = re.compile("User:O=A (.*?),CN=(.*)", re.DOTALL)

    def build(self, context: AuthenticationContext) -> str:
        found = self._subject.fullmatch(context.principal)
        if found is None:
            return "User:ANONYMOUS"
        return "User:server" if found[1] == "server" or found[2] == "super-user" else context.principal
