"""The shape of every coordinator: `contract` has the events and effects that all of them know."""
