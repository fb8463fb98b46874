-- Until when no agent runs: `start` is until somebody starts one; `close` is also until the workspace is closed, or is
-- opened with its agent.
ALTER TABLE stopped_agents ADD COLUMN until TEXT NOT NULL DEFAULT 'start';
