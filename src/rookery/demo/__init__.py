"""The tour of `rookery demo`: a throw-away project, two agents on the scripted model, and what they do in it."""
