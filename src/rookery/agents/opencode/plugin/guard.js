// Runs before OpenCode itself, as long as nobody has approved the repository's own OpenCode config.
// OPENCODE_DISABLE_PROJECT_CONFIG does not cover all of OpenCode: a second loader imports a repository's plugins
// anyway. So no file that the repository contains or names may be imported.
const fs = require("fs")
const path = require("path")

// The path prefix of OpenCode's own files in the runtime.
const BUNDLED = "/$bunfs/"

const environment = process.env
delete environment.BUN_INSPECT_PRELOAD

const real = (name) => {
  try {
    return fs.realpathSync(name)
  } catch {
    return path.resolve(name)
  }
}
const within = (file, folder) => file === folder || file.startsWith(folder + path.sep)

const home = environment.HOME || require("os").homedir()
const config = path.join(environment.XDG_CONFIG_HOME || path.join(home, ".config"), "opencode")
const workspace = real(environment.ROOKERY_WORKSPACE_PATH)
// The folders of Rookery and of the user.
const trusted = [__dirname, config, path.join(home, ".opencode"), environment.OPENCODE_CONFIG_DIR].filter(Boolean).map(real)
const documents = ["", ".opencode"].flatMap((folder) =>
  ["opencode.json", "opencode.jsonc"].map((name) => path.join(workspace, folder, name)),
)

// The current text of the repository's configs, with escapes decoded, so that no name hides behind one.
const said = () =>
  documents
    .map((name) => (fs.existsSync(name) ? fs.readFileSync(name, "utf8") : ""))
    .join("\n")
    .replace(/\\u([0-9a-fA-F]{4})/g, (_, digits) => String.fromCharCode(parseInt(digits, 16)))
    .replaceAll("\\/", "/")

const names = (file) => {
  const packages = [...file.matchAll(/node_modules\/((?:@[^/]+\/)?[^/]+)/g)].map((found) => found[1])
  if (packages.length) return packages
  const stem = path.parse(file).name
  return [stem === "index" ? path.basename(path.dirname(file)) : stem]
}

const refused = (file) => {
  if (trusted.some((folder) => within(file, folder))) return false
  if (within(file, workspace)) return true
  const text = said()
  return names(file).some((name) => text.includes(name))
}

const wanted = ({ path: name, importer }) =>
  name.startsWith("file:") ? require("url").fileURLToPath(name) : path.resolve(path.dirname(importer || "/"), name)

Bun.plugin({
  name: "rookery-guard",
  setup(build) {
    // A bare name is either the runtime's own or resolved from a file that was allowed.
    build.onResolve({ filter: /^(\.|\/|file:)/ }, (call) => {
      const file = wanted(call)
      if (file.startsWith(BUNDLED) || !refused(real(file))) return
      throw new Error(`${file} belongs to a repository whose OpenCode config is not approved`)
    })
  },
})
console.log("rookery: the repository's own OpenCode config is kept off")
