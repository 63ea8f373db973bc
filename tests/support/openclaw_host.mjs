// Stands for OpenClaw in tests of its plugin: registers it, makes the calls named in standard input, prints answers.
const { plugin, config, calls } = JSON.parse(await new Response(process.stdin).text());
const { default: entry } = await import(plugin);
const registered = { tools: [], services: [], factory: undefined, capability: undefined };
entry.register({
  pluginConfig: config,
  logger: console,
  registerTool(factory, options) {
    registered.factory = factory;
    registered.names = options.names;
  },
  registerMemoryCapability(capability) {
    registered.capability = capability;
  },
  registerService(service) {
    registered.services.push(service);
  },
});
const answers = [];
for (const { tool, params, context = {} } of calls) {
  const found = registered.factory(context).find((each) => each.name === tool);
  const result = await found.execute("call-1", params, new AbortController().signal);
  answers.push(JSON.parse(result.content[0].text));
}
const tools = registered.factory({}).map(({ name, parameters }) => ({ name, required: parameters.required }));
const prompt = registered.capability.promptBuilder({ availableTools: new Set(registered.names), citationsMode: "auto" });
// Not ended by hand where the calls are over: what the plugin started must not keep OpenClaw from ending.
process.stdout.write(JSON.stringify({ id: entry.id, kind: entry.kind, names: registered.names, tools, prompt, answers }));
