// Rookery's own plugin for OpenCode. Its options are set in config.py:
//   hidden:    variables that are empty in tool shells and terminals
//   forgotten: variables that were set only for OpenCode's own start
//   providers: Rookery's model providers, allowed whatever the user's enabled_providers says
//   logins:    model providers that the user is signed in to
//   entries:   the file with the MCP servers of the workspace, which Rookery keeps current; see server_entries.py
//   launched:  the names of the MCP servers that the inline config contains
//   refusal_note: added to the output of a tool that looks as if the sandbox had refused an access
import { readFileSync } from "node:fs"

import { attributeCall, attributeRequests } from "./conversations.js"

// How long a turn waits for servers that are new.
const CONNECT_MS = 10_000
const REFUSED = /\b(EACCES|EPERM)\b|Permission denied|Operation not permitted|PermissionError/

export default async ({ client }, options) => {
  const { hidden = [], forgotten = [], providers = [], logins = [], entries, launched = [], refusal_note } = options ?? {}
  for (const name of forgotten) delete process.env[name]
  const servers = entries ? followServers(client, entries, launched) : undefined
  attributeRequests()
  return {
    config: async (config) => {
      const enabled = config.enabled_providers
      if (enabled) enabled.push(...providers.filter((name) => !enabled.includes(name)))
      servers?.setConfig(config)
      // OpenCode takes its default model from a provider named here, if any is: Rookery's must not be the only one.
      const named = Object.keys(config.provider ?? {})
      if (!named.length || named.some((name) => !providers.includes(name))) return
      for (const name of logins) config.provider[name] = {}
    },
    "chat.message": async (chat, output) => {
      await servers?.update()
      // A failure leaves the turn alone: the gateway refuses the calls.
      await servers?.hideTools(chat.sessionID, output.message).catch(() => {})
    },
    "tool.execute.before": async (call, output) => {
      attributeCall(call.sessionID, output.args)
      if (call.tool === "read_mcp_resource") await servers?.requireServer(call.sessionID, output.args?.server)
    },
    "tool.execute.before": async (call, output) => {
      attributeCall(call.sessionID, output.args)
    },
    "tool.execute.after": async (_call, output) => {
      if (refusal_note && typeof output?.output === "string" && REFUSED.test(output.output)) {
        output.output += `\n\n${refusal_note}`
      }
    },
    "shell.env": async (_call, output) => {
      for (const name of hidden) output.env[name] = ""
    },
  }
}

// The MCP servers of this directory. OpenCode connects those of its config when it first needs them, and takes a later
// connection from the same config object, so that its entries are also right after OpenCode has read its config again.
function followServers(client, path, launched) {
  let config
  let text
  // The entries of Rookery, by name. OpenCode merges those of the launch into its config each time it reads it.
  let known = Object.fromEntries(launched.map((name) => [name, {}]))
  // How often each server had become usable when it was connected last.
  let counts = {}
  // Whether all servers that have started were connected when this was checked last.
  let settled = false
  let running = Promise.resolve()

  const read = () => {
    try {
      return readFileSync(path, "utf8")
    } catch {
      return text // the daemon has ended, or is just starting
    }
  }
  const expand = (value) =>
    JSON.parse(value, (_key, item) =>
      typeof item === "string" ? item.replace(/\{env:([^}]+)\}/g, (_match, name) => process.env[name] ?? "") : item,
    )
  // A server may be named like something that every object has.
  const has = (object, name) => Object.hasOwn(object, name)
  // Set the entries in OpenCode's config, and return what the file says.
  const apply = (newText) => {
    const content = expand(newText)
    config.mcp ??= {}
    for (const name of Object.keys(known)) if (!has(content.mcp, name)) delete config.mcp[name]
    for (const [name, entry] of Object.entries(content.mcp)) {
      // Of a server that is off, there may be an entry of the user's own.
      if (entry.type) config.mcp[name] = entry
      else if (has(config.mcp, name)) config.mcp[name] = { ...config.mcp[name], ...entry }
    }
    return content
  }
  const checkStatus = async () => {
    const status = (await client.mcp.status()).data ?? {}
    return (name) => has(status, name) && status[name].status === "connected"
  }
  // A server that has not started yet may take too long to be connected: its start changes the file once more.
  const update = async () => {
    const newText = read()
    if (!config || newText === undefined || (newText === text && settled)) return
    const before = known
    // OpenCode reports only the servers in its config, so before any of them is removed from it.
    const isConnected = await checkStatus()
    const content = apply(newText)
    const gone = Object.keys(before).filter((name) => !has(content.mcp, name))
    const off = Object.keys(content.mcp).filter((name) => !content.mcp[name].enabled)
    // OpenCode only disconnects a server that is in its config.
    for (const name of gone) config.mcp[name] = { ...before[name], enabled: false }
    for (const name of [...gone, ...off]) if (isConnected(name)) await client.mcp.disconnect({ path: { name } })
    for (const name of gone) delete config.mcp[name]
    const usable = Object.keys(content.usable)
    // What has failed without a change is tried again only if it has started, so that it delays no turn for long.
    const isDue = (name) => newText !== text || content.ready.includes(name)
    const connecting = usable.filter((name) => !isConnected(name) && isDue(name))
    // A connection to a server that had failed lists what it could list then. It is kept if calls may be running over
    // it: the server also announces its tools, only later.
    const repaired = usable.filter((name) => isConnected(name) && content.usable[name] !== counts[name])
    if (repaired.length && !Object.keys((await client.session.status()).data ?? {}).length) connecting.push(...repaired)
    await Promise.all(connecting.map((name) => client.mcp.connect({ path: { name } })))
    // OpenCode reports a connection that failed as done, and tries it no more.
    const isConnectedNow = connecting.length ? await checkStatus() : isConnected
    known = content.mcp
    counts = content.usable
    text = newText
    settled = content.ready.every(isConnectedNow)
  }
  // What is off in the conversation of a session. One that works for another session belongs to its conversation.
  const findOff = async (session) => {
    const { off } = JSON.parse(read() ?? "{}")
    if (!off) return { servers: [], tools: [] }
    for (let id = session; id; id = (await client.session.get({ path: { id } })).data?.parentID) {
      if (has(off, id)) return off[id]
    }
    return off[""]
  }
  return {
    // OpenCode offers the tools of all its connections, but those that the message excludes.
    hideTools: async (session, message) => {
      const { tools } = await findOff(session)
      if (tools.length) message.tools = { ...message.tools, ...Object.fromEntries(tools.map((name) => [name, false])) }
    },
    // The gateway refuses calls, but does not know for which session OpenCode reads a resource.
    requireServer: async (session, server) => {
      if (!(await findOff(session)).servers.includes(server)) return
      throw new Error(`The resource was not read: the user has switched off ${server} in this conversation.`)
    },
    setConfig: (newConfig) => {
      config = newConfig
      const newText = read()
      if (newText === undefined) return
      const content = apply(newText)
      known = content.mcp
      counts = content.usable
      text = newText
      settled = false
    },
    // Connect what is new and disconnect what is gone, one update after the other. A failure leaves the turn alone, and
    // the next turn tries again.
    update: () => {
      running = running.then(update).catch(() => {})
      return Promise.race([running, new Promise((resolve) => setTimeout(resolve, CONNECT_MS))])
    },
  }
}
