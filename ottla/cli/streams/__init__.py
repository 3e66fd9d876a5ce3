"""Stream programs for `ottla streams`.

load      the application in a program's file
view      the tasks, stores, lag and rates of an application
"""
