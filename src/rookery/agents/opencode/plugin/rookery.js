// Rookery's own plugin for OpenCode. What it is to do comes as options; see injection.py.
//   hidden:    variables that tool shells and terminals see as empty
//   forgotten: variables that were for OpenCode's own start only
//   providers: model providers of ours, allowed whatever the user's enabled_providers says
//   logins:    model providers that the user is signed in to
export default async (_input, options) => {
  const { hidden = [], forgotten = [], providers = [], logins = [] } = options ?? {}
  for (const name of forgotten) delete process.env[name]
  return {
    config: async (config) => {
      const enabled = config.enabled_providers
      if (enabled) enabled.push(...providers.filter((name) => !enabled.includes(name)))
      // OpenCode takes its default model from a provider that is named here, if any is: ours alone must not be.
      const named = Object.keys(config.provider ?? {})
      if (!named.length || named.some((name) => !providers.includes(name))) return
      for (const name of logins) config.provider[name] = {}
    },
    "shell.env": async (_call, output) => {
      for (const name of hidden) output.env[name] = ""
    },
  }
}
