"""The controller's commands: a request on wire classes -> the records to write, and the response. Pure.

Invariant: a command reads an image and changes nothing; its response may be sent when its records are committed. Read
`controller` first (the table), then the file of a command. Rare commands are imported on first use.
"""
