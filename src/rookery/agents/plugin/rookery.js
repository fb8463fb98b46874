// Rookery's own plugin for OpenCode. What it is to do comes as options; see injection.py.
//   hidden:    variables that tool shells and terminals see as empty
//   forgotten: variables that were for OpenCode's own start only
//   providers: model providers that are allowed whatever the user's enabled_providers says
export default async (_input, options) => {
  const { hidden = [], forgotten = [], providers = [] } = options ?? {}
  for (const name of forgotten) delete process.env[name]
  return {
    config: async (config) => {
      const enabled = config.enabled_providers
      if (enabled) enabled.push(...providers.filter((name) => !enabled.includes(name)))
    },
    "shell.env": async (_call, output) => {
      for (const name of hidden) output.env[name] = ""
    },
  }
}
