-- The workspace of a switch for one conversation, whose subject is the id of a session of that workspace's agent.
ALTER TABLE switches ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
