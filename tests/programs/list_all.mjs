// Lists everything at an MCP server with the official TypeScript SDK, and prints the names.
// list_all.mjs SDK URL: the folder of the SDK, and the address of the server.

const [sdk, url] = process.argv.slice(2)
const { Client } = await import(`${sdk}/dist/esm/client/index.js`)
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`)

const client = new Client({ name: "test", version: "1" })
await client.connect(new StreamableHTTPClientTransport(new URL(url)))
const names = {
  tools: (await client.listTools()).tools.map((one) => one.name),
  prompts: (await client.listPrompts()).prompts.map((one) => one.name),
  resources: (await client.listResources()).resources.map((one) => one.uri),
  templates: (await client.listResourceTemplates()).resourceTemplates.map((one) => one.uriTemplate),
}
await client.close()
console.log(JSON.stringify(names))
