// Gives the agents of OpenClaw the memory of Memline: `memory_search` and `memory_get`, over HTTP where an address
// is configured, else over MCP from a `memline mcp` that this plugin starts. Plain JavaScript: nothing is built,
// and nothing but Node is needed. It works with OpenClaw 2026.2.12 and 2026.9.6, which are tested.

import { spawn } from "node:child_process";

/** Milliseconds after its last call until a `memline mcp` is ended. */
const IDLE_MS = 300_000;

/** Bytes of what a `memline mcp` says of an error that are kept. */
const STDERR_CHARS = 2_000;

const TOOLS = [
  {
    name: "memory_search",
    label: "Memory Search",
    path: "/search",
    description:
      "Search this agent's memory: notes (MEMORY.md, memory/*.md) and, where enabled, past conversations. Always do this before you answer about prior work, decisions, dates, people, preferences or todos. Ids, error codes, file names and dates are found exactly. Returns snippets with path, lines and citation. If the answer has disabled=true, stale=true or a warning, tell the user and include its action.",
    parameters: {
      type: "object",
      additionalProperties: false,
      required: ["query"],
      properties: {
        query: { type: "string", description: "What to find: a question, or exact words, ids, file names, dates." },
        maxResults: { type: "integer", minimum: 1, description: "Hits at most." },
        minScore: { type: "number", description: "Similarity below which a hit without any word of the query is left out." },
        corpus: { type: "string", enum: ["memory", "sessions", "all"], description: "Where to look; all is the default." },
      },
    },
    failed: () => ({ results: [] }),
  },
  {
    name: "memory_get",
    label: "Memory Get",
    path: "/get",
    description:
      "Read lines of a note that memory_search found: give its path, or its citation path#L5-L7. When truncated is true, go on at nextFrom. Only what this memory holds can be read.",
    parameters: {
      type: "object",
      additionalProperties: false,
      required: ["path"],
      properties: {
        path: { type: "string", description: "Path of a hit, such as memory/2026-02-10.md; path#L5-L7 names lines as well." },
        from: { type: "integer", minimum: 1, description: "First line." },
        lines: { type: "integer", minimum: 1, description: "Number of lines." },
      },
    },
    failed: (params) => ({ path: params.path, text: "" }),
  },
];

/** Memline cannot be reached, or refuses everything: what to do about it is the `action`. */
class Unavailable extends Error {
  constructor(message, action) {
    super(message);
    this.action = action;
  }
}

/** Memline refuses this one call. */
class Refused extends Unavailable {}

export default {
  id: "memline",
  name: "Memline",
  description: "Memory search by Memline: notes and past conversations, with citations",
  kind: "memory",
  register(api) {
    const settings = settingsOf(api.pluginConfig ?? {}, process.env);
    const memory = settings.url ? new Http(settings) : new Stdio(settings);
    const names = TOOLS.map((tool) => tool.name);
    api.registerTool((context) => TOOLS.map((tool) => toolOf(tool, memory, whoAsks(context, settings))), { names });
    // Absent in early releases, which have such a section of their own.
    api.registerMemoryCapability?.({ promptBuilder });
    api.registerService?.({ id: "memline", start() {}, stop: () => memory.close() });
  },
};

function settingsOf(config, environment) {
  const expanded = (text) => text.replace(/\$\{([A-Za-z_]\w*)\}/g, (_, name) => environment[name] ?? "");
  return {
    url: (config.url ?? "").trim().replace(/\/+$/, ""),
    token: expanded(config.token ?? "").trim() || (environment.MEMLINE_SERVE_TOKEN ?? ""),
    command: config.command?.length ? config.command : ["memline"],
    agent: (config.agent ?? "").trim(),
    timeoutMs: (config.timeoutSeconds ?? 30) * 1000,
  };
}

/** Say for whom a call is: Memline lets the session decide about access, and refuses the key of another agent. */
function whoAsks(context, settings) {
  const [, named, rest] = /^agent:([^:]+):(.*)$/s.exec(context?.sessionKey ?? "") ?? [];
  const agent = settings.agent || context?.agentId || named || "";
  return { agent, sessionKey: rest === undefined ? (context?.sessionKey ?? "") : `agent:${agent || named}:${rest}` };
}

function toolOf(tool, memory, who) {
  const { name, label, description, parameters } = tool;
  return {
    name,
    label,
    description,
    parameters,
    async execute(_id, params, signal) {
      const answer = await answered(tool, memory, who, params ?? {}, signal);
      return { content: [{ type: "text", text: JSON.stringify(answer, null, 2) }], details: answer };
    },
  };
}

/** Ask Memline. A failure is an answer, too: the agent is to know that it has no memory now, and what to do. */
async function answered(tool, memory, who, params, signal) {
  try {
    return await memory.call(tool, params, who, signal);
  } catch (error) {
    if (signal?.aborted) throw error;
    const action = error.action || "check that Memline runs: memline doctor";
    if (error instanceof Refused) return { ...tool.failed(params), error: error.message, action };
    const warning = `Memory is unavailable: ${error.message}`;
    return { ...tool.failed(params), disabled: true, unavailable: true, error: error.message, warning, action };
  }
}

class Http {
  #settings;

  constructor(settings) {
    this.#settings = settings;
  }

  async call(tool, params, who, signal) {
    const { url, token, timeoutMs } = this.#settings;
    const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
    const body = JSON.stringify({ ...params, ...withoutEmpty(who) });
    const limit = AbortSignal.timeout(timeoutMs);
    let response, text;
    try {
      // A redirect would take the token elsewhere.
      response = await fetch(url + tool.path, {
        method: "POST",
        headers,
        body,
        redirect: "error",
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
      });
      text = await response.text();
    } catch (error) {
      if (limit.aborted) throw new Unavailable(`${url} did not answer within ${timeoutMs / 1000} s`, "memline doctor");
      const reason = error.cause?.code ?? error.cause?.message ?? error.message;
      throw new Unavailable(`${url} cannot be reached (${reason})`, "start it: memline serve");
    }
    const answer = parsed(text);
    if (response.ok && answer) return answer;
    const message = answer?.error ?? `${url} answered ${response.status}`;
    const hint = answer?.hint ?? "";
    if ([400, 403, 404].includes(response.status) && answer) throw new Refused(message, hint);
    const advice = response.status === 401 ? "set the token of memline serve as plugins.entries.memline.config.token" : "";
    throw new Unavailable(message, hint || advice);
  }

  close() {}
}

/** Keeps a `memline mcp` for each session that asks: it decides about access when it starts. */
class Stdio {
  #settings;
  #servers = new Map();

  constructor(settings) {
    this.#settings = settings;
  }

  async call(tool, params, who, signal) {
    const key = JSON.stringify(who);
    let server = this.#servers.get(key);
    if (!server?.isOpen) {
      for (const [each, { isOpen }] of this.#servers) if (!isOpen) this.#servers.delete(each);
      server = new McpProcess(this.#settings, who);
      this.#servers.set(key, server);
    }
    return await server.call(tool.name, params, signal);
  }

  close() {
    for (const server of this.#servers.values()) server.close();
    this.#servers.clear();
  }
}

class McpProcess {
  isOpen = true;
  #child;
  #timeoutMs;
  #waiting = new Map();
  #ready;
  #next = 1;
  #stderr = "";
  #idle;

  constructor({ command, timeoutMs }, { agent, sessionKey }) {
    const [program, ...own] = command;
    const named = [...(agent ? ["--agent", agent] : []), ...(sessionKey ? ["--session-key", sessionKey] : [])];
    this.#timeoutMs = timeoutMs;
    this.#child = spawn(program, [...own, "mcp", ...named], { stdio: ["pipe", "pipe", "pipe"] });
    const ended = (reason) => this.#end(new Unavailable(reason, "memline doctor"));
    this.#child.on("error", (error) => ended(`${program} cannot be started (${error.code ?? error.message})`));
    this.#child.on("close", (code) => ended(this.#stderr.trim() || `${program} mcp ended (${code})`));
    this.#child.stdin.on("error", () => {});
    this.#child.stderr.setEncoding("utf8").on("data", (text) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_CHARS);
    });
    let rest = "";
    this.#child.stdout.setEncoding("utf8").on("data", (text) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      lines.forEach((line) => this.#take(parsed(line)));
    });
    const clientInfo = { name: "openclaw", version: "1" };
    const begun = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo };
    this.#ready = this.#request("initialize", begun).then(() => this.#send({ method: "notifications/initialized" }));
    // Whoever calls sees it; before that it is no unhandled rejection.
    this.#ready.catch(() => {});
  }

  async call(name, params, signal) {
    clearTimeout(this.#idle);
    this.#hold(true);
    try {
      await this.#ready;
      const result = await this.#request("tools/call", { name, arguments: params }, signal);
      const text = result.content?.find((part) => part.type === "text")?.text ?? "";
      if (result.isError) throw new Refused(text || "memline refused the call", "");
      return result.structuredContent ?? parsed(text) ?? { text };
    } finally {
      if (!this.#waiting.size) {
        // A process that waits for nothing does not keep OpenClaw from ending.
        this.#hold(false);
        this.#idle = setTimeout(() => this.close(), IDLE_MS);
        this.#idle.unref();
      }
    }
  }

  close() {
    this.#end(new Unavailable("memline mcp was ended", ""));
    this.#child.stdin.end();
    this.#child.kill();
  }

  #request(method, params, signal) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      const give = (settle) => (value) => {
        clearTimeout(limit);
        signal?.removeEventListener("abort", aborted);
        this.#waiting.delete(id);
        settle(value);
      };
      const failed = give(reject);
      const aborted = () => failed(signal.reason);
      const limit = setTimeout(() => {
        failed(new Unavailable(`memline mcp did not answer within ${this.#timeoutMs / 1000} s`, "memline doctor"));
      }, this.#timeoutMs);
      if (signal?.aborted) return failed(signal.reason);
      signal?.addEventListener("abort", aborted);
      this.#waiting.set(id, { resolve: give(resolve), reject: failed });
      this.#send({ id, method, params });
    });
  }

  #send(message) {
    if (this.isOpen) this.#child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  #take(message) {
    const waiting = this.#waiting.get(message?.id);
    if (!waiting) return;
    if (message.error) waiting.reject(new Refused(message.error.message ?? "memline refused the call", ""));
    else waiting.resolve(message.result ?? {});
  }

  #end(error) {
    this.isOpen = false;
    clearTimeout(this.#idle);
    for (const waiting of [...this.#waiting.values()]) waiting.reject(error);
  }

  #hold(isHeld) {
    const how = isHeld ? "ref" : "unref";
    for (const each of [this.#child, this.#child.stdin, this.#child.stdout, this.#child.stderr]) each[how]?.();
  }
}

/** What the system prompt says of the tools, in releases that ask the memory plugin for it. */
function promptBuilder({ availableTools, citationsMode }) {
  if (!availableTools?.has("memory_search")) return [];
  const cite =
    citationsMode === "off"
      ? "Do not mention paths or lines in replies unless the user asks."
      : "Cite what you use as path#L5-L7 where it helps the user to check it.";
  return [
    "## Memory Recall",
    "Before answering anything about prior work, decisions, dates, people, preferences or todos: run memory_search, then memory_get for the lines around a hit when its snippet is not enough. If nothing is found, say that you looked.",
    "If an answer has disabled=true, stale=true or a warning, tell the user and suggest its action.",
    cite,
    "",
  ];
}

function withoutEmpty(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value));
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" ? value : undefined;
  } catch {
    return undefined;
  }
}
