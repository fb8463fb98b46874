// Tells the gateway which session of OpenCode a tool call belongs to. The sessions of a directory share their
// connections to MCP servers, and the requests of OpenCode do not name the session: a header is added to them.

const HEADER = "x-rookery-session"
// The requests that are not known to belong to one session: they are made for all.
const ALL = "*"
// One for all directories of this process.
const KEY = Symbol.for("rookery.conversations")

// Add the header to all requests to the gateway from now on.
export function attributeRequests() {
  if (globalThis[KEY]) return
  const shared = (globalThis[KEY] = { session: undefined })
  const gateway = `http://127.0.0.1:${process.env.ROOKERY_MCP_PORT}/`
  globalThis.fetch = new Proxy(globalThis.fetch, {
    apply(target, self, [input, init, ...rest]) {
      const session = shared.session ?? ALL
      shared.session = undefined
      if (!String(input).startsWith(gateway)) return Reflect.apply(target, self, [input, init, ...rest])
      const headers = new Headers(init?.headers)
      headers.set(HEADER, session)
      return Reflect.apply(target, self, [input, { ...init, headers }, ...rest])
    },
  })
}

// OpenCode calls its hook with the same object that it writes into the body of the request, right before it calls
// fetch. So the writing of that object names the session of the request that follows, whatever else runs meanwhile.
// The property is not enumerable, and changes nothing that is written. It is an accessor, because Bun overlooks a value.
export function attributeCall(session, args) {
  if (typeof args !== "object" || args === null || !Object.isExtensible(args) || Object.hasOwn(args, "toJSON")) return
  const toJSON = function () {
    const shared = globalThis[KEY]
    shared.session = session
    queueMicrotask(() => {
      shared.session = undefined
    })
    return { ...this }
  }
  Object.defineProperty(args, "toJSON", { get: () => toJSON, configurable: true })
}
