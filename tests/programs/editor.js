// An editor's extension: connects as its first argument says, asks what its second says, prints the answers, and leaves.
// What it prints at the end is {transport, answers, pushed}, or {refused} if it was not let in.
const { io } = require("socket.io-client");

const { url, ...options } = JSON.parse(process.argv[2]);
const questions = JSON.parse(process.argv[3]);
const socket = io(url, { ...options, reconnection: false });
const pushed = [];

function leave(told) {
  console.log(JSON.stringify(told));
  socket.disconnect();
}

socket.onAny((event) => pushed.push(event));
socket.on("connect_error", (error) => leave({ refused: error.message, data: error.data }));
socket.on("connect", async () => {
  const answers = [];
  for (const [event, ...given] of questions) {
    answers.push(await socket.timeout(20000).emitWithAck(event, ...given));
  }
  const { engine } = socket.io;
  if (options.transports.includes("websocket") && engine.transport.name !== "websocket") {
    await new Promise((upgraded) => engine.once("upgrade", upgraded));
  }
  leave({ transport: engine.transport.name, answers, pushed });
});
