"""Stream programs for `ottla streams`.

load      a program's file, and the application in it
view      what an application has and does: tasks, stores, lag, rates
"""
