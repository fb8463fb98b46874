// Rookery's own plugin for OpenCode. Its options are set in config.py:
//   hidden:    variables that are empty in tool shells and terminals
//   forgotten: variables that were set only for OpenCode's own start
//   providers: Rookery's model providers, allowed whatever the user's enabled_providers says
//   logins:    model providers that the user is signed in to
export default async (_input, options) => {
  const { hidden = [], forgotten = [], providers = [], logins = [] } = options ?? {}
  for (const name of forgotten) delete process.env[name]
  return {
    config: async (config) => {
      const enabled = config.enabled_providers
      if (enabled) enabled.push(...providers.filter((name) => !enabled.includes(name)))
      // OpenCode takes its default model from a provider named here, if any is: Rookery's must not be the only one.
      const named = Object.keys(config.provider ?? {})
      if (!named.length || named.some((name) => !providers.includes(name))) return
      for (const name of logins) config.provider[name] = {}
    },
    "shell.env": async (_call, output) => {
      for (const name of hidden) output.env[name] = ""
    },
  }
}
