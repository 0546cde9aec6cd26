"""Leave attributes out of the API reference that only repeat a parameter of the constructor. The signature of the class shows these parameters, with
their types; an entry `name = name` adds nothing.
"""

import griffe

__all__ = ["ConstructorParameters"]


class ConstructorParameters(griffe.Extension):
    """Remove `self.name = name` of a constructor, unless it has a docstring."""

    def on_class(self, *, cls: griffe.Class, **_: object) -> None:
        repeated = [
            name
            for name, member in cls.members.items()
            if isinstance(member, griffe.Attribute)
            and "instance-attribute" in member.labels
            and "class-attribute" not in member.labels
            and not member.has_docstring
            and str(member.value) == name
        ]
        for name in repeated:
            cls.del_member(name)
