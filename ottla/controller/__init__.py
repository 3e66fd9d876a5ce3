"""The controller's commands: a request on wire classes -> the records that it means, and the response. Pure.

Invariant: a command reads an image and changes nothing; its response may leave when its records are committed. Read
`controller` first (the table), then the file of a command. What is rare is imported on its first use.
"""
