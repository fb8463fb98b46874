// A plugin for OpenCode in the demo's own config: shows a toast when an agent has finished its turn.
export default async ({ client, directory }) => ({
  event: async ({ event }) => {
    if (event.type !== "session.idle") return
    const name = directory.split("/").pop()
    await client.tui.showToast({
      body: { title: "Done", message: `${name} is ready for review`, variant: "success", duration: 30000 },
    })
  },
})
