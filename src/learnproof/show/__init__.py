"""What people see: the running training, the verdict, the pictures, the report. Nothing is decided in here.

progress         a training while it runs, in a terminal or as plain lines
verdict_table    a verdict, printed
plots            learning_progress.png
report           report.html, which holds everything and needs nothing
"""
