//! What the manual pages say besides the options: one entry for each command. A test runs the grammar over every example.

/// A file that a command reads or writes.
pub type File = (&'static str, &'static str);

pub struct Page {
    /// `noctule-NAME(1)`; empty: the page of `noctule` itself.
    pub name: &'static str,
    /// Paragraphs.
    pub description: &'static [&'static str],
    /// A command line, and what it does.
    pub examples: &'static [(&'static str, &'static str)],
    pub files: &'static [File],
    /// Other pages, with their sections.
    pub see: &'static [&'static str],
}

const KEY: File = ("~/.config/noctule/key", "this side's secret key; $XDG_CONFIG_HOME goes before ~/.config");
const KNOWN_HOSTS: File = ("~/.config/noctule/known_hosts", "keys of hosts that were reached before");
const STATUS_SOCKET: File = (
    "$XDG_RUNTIME_DIR/noctule/proxy-PORT.sock",
    "where a proxy that serves is asked; /run/noctule for root, proxy-ADDRESS-PORT.sock with an address in --bind",
);
const AUTHORISED: File = ("~/.config/noctule/authorised_keys", "keys that may come in, with what each may do");
const CONFIG: File = ("~/.config/noctule/config", "what is said for single hosts; noctule-config(5)");
const NODE_FILE: File = ("/etc/noctule/node.toml", "the node's file; noctule.toml(5)");
const SOCKET: File = ("/run/noctule/node.sock", "the node's control socket");

pub const PAGES: &[Page] = &[
    Page {
        name: "",
        description: &[
            "noctule sends files, streams and IP traffic over bad links: radio, satellite, mobile, long distance. It repairs losses with coded packets \
             instead of waiting until what was lost is sent again.",
            "Hosts are known by their keys. A receiver that nobody knows yet shows a code, which lets one sender in and proves both keys.",
        ],
        examples: &[
            ("noctule recv --into incoming", "Receive files; prints the command for the other host."),
            ("noctule send report.pdf photos hill.example.org", "Send a file and a directory."),
            ("noctule perf -s", "Serve measurements."),
            ("noctule perf -c hill.example.org", "Measure goodput to that host."),
        ],
        files: &[KEY, KNOWN_HOSTS, AUTHORISED, CONFIG, NODE_FILE],
        see: &[],
    },
    Page {
        name: "keygen",
        description: &[
            "A key is made where there is none, by every command that needs a lasting one: keygen is for other places, for pre-shared keys, and for a look at keys.",
        ],
        examples: &[
            ("noctule keygen -o /etc/noctule/key", "Make a key for a node; prints its public half."),
            ("noctule keygen --fingerprint", "Show fingerprint and public key of this host's key."),
            ("noctule keygen --shared -o psk", "Make a pre-shared key, to be copied to the other side."),
            ("noctule keygen --forget hill.example.org", "Forget a key that its owner has replaced."),
        ],
        files: &[KEY, ("~/.config/noctule/shared-key", "the pre-shared key that --shared makes"), KNOWN_HOSTS],
        see: &[],
    },
    Page {
        name: "send",
        description: &[
            "Contents are compared by their BLAKE3 hashes at both ends. What is there already is not sent again, and what was interrupted goes on when the same command is run again.",
            "With --mode brctp one file goes to one host or many as coded blocks; with --one-way nothing comes back at all.",
        ],
        examples: &[
            ("noctule send report.pdf hill.example.org", "Send a file."),
            ("noctule send --limit-rate 2MB -p 5000 photos 192.0.2.7", "Send a directory to port 5000, at 2 megabytes per second."),
            ("noctule send - hill --name backup.tar", "Send what comes from standard input."),
            ("noctule send --mode brctp image.iso hill mast valley", "Send one file to three hosts."),
        ],
        files: &[KEY, KNOWN_HOSTS, CONFIG],
        see: &["noctule-recv(1)", "noctule-get(1)", "noctule-config(5)"],
    },
    Page {
        name: "recv",
        description: &[
            "Writes below one directory and nowhere else; on Linux the kernel holds it to that (Landlock). Files get their names when their hash is right.",
            "Each transfer and each refusal is a line of the log with time, address, key, the key's comment in the file of authorised keys, and the result.",
        ],
        examples: &[
            ("noctule recv --into incoming", "Receive from the sender that has the code which is shown, and from listed keys."),
            ("noctule recv --into incoming -p 5000 --once", "The same on port 5000, and end after one transfer."),
            (
                "noctule recv --bind 192.0.2.1 --authorised-keys senders --log-format json",
                "On one address, for listed keys, with a log for programs.",
            ),
        ],
        files: &[KEY, AUTHORISED],
        see: &["noctule-send(1)", "noctule-serve(1)"],
    },
    Page {
        name: "serve",
        description: &[
            "Offers one directory to noctule get, read-only unless --writable is said; on Linux the kernel holds it to that (Landlock). Nothing outside of the directory can be asked for.",
            "A key may get files with the option read of its line in the file of authorised keys. Each request is a line of the log.",
        ],
        examples: &[
            ("noctule serve photos", "Offer a directory to the peer that has the code which is shown, and to listed keys."),
            ("noctule serve exchange --writable -p 5000", "On port 5000, and take what noctule send brings, too."),
        ],
        files: &[KEY, AUTHORISED],
        see: &["noctule-get(1)", "noctule-recv(1)"],
    },
    Page {
        name: "get",
        description: &[
            "Asks a host that runs noctule serve for files and directories. Patterns are resolved there. What is here already does not travel, and what was interrupted goes on.",
            "--delete deletes here, in the directories that are got, once everything has arrived; never when the list of the other side is not whole.",
        ],
        examples: &[
            ("noctule get --list hill.example.org:", "List what is there."),
            ("noctule get hill.example.org:photos 'hill.example.org:*.pdf' incoming", "Get a directory, and files by a pattern."),
            ("noctule get --update --delete --exclude '*.o' hill:src mirror", "Make mirror/src the same as src there, without objects."),
        ],
        files: &[KEY, KNOWN_HOSTS, CONFIG],
        see: &["noctule-serve(1)", "noctule-send(1)", "noctule-config(5)"],
    },
    Page {
        name: "perf",
        description: &[
            "Options are named as iperf3 names them where they mean the same. The receiving application counts: what did not arrive was not measured.",
        ],
        examples: &[
            ("noctule perf -s", "Serve tests and pings."),
            ("noctule perf -c hill.example.org -t 30 -R", "Measure what the server sends for 30 seconds."),
            ("noctule perf -c hill.example.org --mode btp -b 20M", "Measure messages that may be late, at 20 Mbit/s."),
            ("noctule perf -c hill.example.org --mode tcp -C cubic", "Compare with the kernel's TCP."),
        ],
        files: &[KEY, KNOWN_HOSTS, AUTHORISED, CONFIG],
        see: &["noctule-ping(1)", "noctule-doctor(1)", "noctule-config(5)"],
    },
    Page {
        name: "ping",
        description: &["Sends messages at a steady rate to a host that runs noctule perf -s, and tells how long each answer took."],
        examples: &[
            ("noctule ping hill.example.org", "A hundred messages, ten a second."),
            ("noctule ping hill.example.org -i 20ms -c 3000 --svg rtt.svg", "A minute at 50 messages a second, with a figure."),
            ("noctule ping hill.example.org --first", "Measure how long beginnings take."),
        ],
        files: &[KEY, KNOWN_HOSTS, CONFIG],
        see: &["noctule-perf(1)", "noctule-config(5)"],
    },
    Page {
        name: "proxy",
        description: &[
            "Programs speak TCP and UDP to ports of this host; what they say crosses the bad path repaired by coded packets, and the other side, noctule proxy serve, speaks TCP and UDP to \
             the targets. Names are resolved there. Ends, half-closed connections and resets stay what they are.",
            "The ports are written as ssh writes them. -D speaks SOCKS 5 (with UDP ASSOCIATE), SOCKS 4 and 4a, HTTP CONNECT and plain HTTP on one port. When the session ends it is opened again, for ever; connections of the old \
             one are reset.",
        ],
        examples: &[
            ("noctule proxy hill.example.org -D 1080", "A proxy for a browser: localhost:1080, SOCKS or HTTP."),
            (
                "noctule proxy hill.example.org -L 5432:db.internal:5432 -L udp:5353:192.0.2.53:53",
                "A database and a resolver of the other side.",
            ),
            ("noctule proxy hill.example.org -R 8080:localhost:80", "Let port 8080 of the other side lead to a server here."),
            (
                "noctule proxy hill.example.org -W db.internal:22",
                "One connection by standard input and output: ssh -o ProxyCommand='noctule proxy hill.example.org -W %h:%p' db.internal",
            ),
        ],
        files: &[KEY, KNOWN_HOSTS, CONFIG],
        see: &["noctule-proxy-serve(1)", "noctule-proxy-rules(1)", "noctule-proxy-share(1)", "noctule-config(5)"],
    },
    Page {
        name: "proxy-serve",
        description: &[
            "Connects to what noctule proxy asks for. Public addresses may be reached; those of this host and of private networks only with --allow-private or by a rule. A rule is asked about the address that is dialled, \
             after its name was resolved.",
            "A key may use the proxy with the option proxy of its line in the file of authorised keys. Each connection is a line of the log with key, user, source, target, rule, bytes both ways, bytes on the wire, repaired packets, duration and how it ended.",
            "In the file of --config, a table [[user]] says of a user its name and key, and what it may do: allow-target and deny-target, which come before those of all; allow-private; \
             rate-up and rate-down, in bits or bytes per second over all of its connections; max-connections; quota-day, quota-month and quota-total, in bytes of both directions. \
             SIGHUP makes the server read the file again: connections go on that are still allowed.",
        ],
        examples: &[
            ("noctule proxy serve", "Serve the peer that has the code which is shown, and listed keys."),
            ("noctule proxy serve --allow-target db.internal:5432 --deny-target all", "One target and nothing else."),
            (
                "noctule proxy serve --bind 192.0.2.1:4242 --deny-target all:25 --allow-remote-listen",
                "No mail; ports here may lead to the other side.",
            ),
        ],
        files: &[
            KEY,
            AUTHORISED,
            STATUS_SOCKET,
            ("~/.local/state/noctule/proxy-quotas.json", "bytes of quotas; $XDG_STATE_HOME goes before ~/.local/state"),
        ],
        see: &["noctule-proxy(1)", "noctule-proxy-status(1)", "noctule-proxy-kick(1)", "noctule-proxy-share(1)"],
    },
    Page {
        name: "proxy-status",
        description: &[
            "Asks the server on this host, which tells it on a Unix socket that only its user may open, or on loopback with a secret.",
            "The same is there for programs over HTTP: GET /v1/status, GET /v1/connections, GET /metrics for Prometheus, and POST /v1/kick with a user or a connection.",
        ],
        examples: &[
            ("noctule proxy status", "Users, their rates and quotas, and the largest targets."),
            ("noctule proxy status --connections --watch 2s", "Every connection, again and again."),
            ("noctule proxy status --api 127.0.0.1:9495 --api-secret secret --json", "From a server that listens on loopback."),
        ],
        files: &[STATUS_SOCKET],
        see: &["noctule-proxy-serve(1)", "noctule-proxy-kick(1)"],
    },
    Page {
        name: "proxy-kick",
        description: &[
            "Connections are reset, and sessions closed. A user whose key may still use the proxy comes back: take it out of the file and reload to keep it out.",
        ],
        examples: &[
            ("noctule proxy kick ann", "End all that the user ann has."),
            ("noctule proxy kick 17", "End the connection of this number."),
        ],
        files: &[STATUS_SOCKET],
        see: &["noctule-proxy-serve(1)", "noctule-proxy-status(1)"],
    },
    Page {
        name: "proxy-share",
        description: &[
            "A link names the server and its public key, and perhaps the code that lets one peer in; no secret key stands in it. The link is the only line on standard output where that is no terminal. On a terminal its QR code stands below, if it fits.",
            "The maker of the link decides what is trusted: pass it on by a channel on which it cannot be changed.",
        ],
        examples: &[
            ("noctule proxy share hill.example.org --name 'the hill'", "A link to this host, by the name that others know."),
            (
                "noctule proxy share --code 4-otter-lagoon",
                "One that lets a new peer in, once, with the code that noctule proxy serve shows.",
            ),
            (
                "noctule proxy share hill.example.org --peer-key qdhg43ot4p4kontdusgyxkjrk3n4k3i2dakjllp74kz3brtztrzayhq5",
                "A link to a server elsewhere.",
            ),
        ],
        files: &[KEY],
        see: &["noctule-proxy(1)", "noctule-proxy-serve(1)"],
    },
    Page {
        name: "proxy-rules",
        description: &[
            "Prints what noctule proxy --intercept installs by itself. Without HOST, name the server's address by --exclude.",
            "With --remove nothing is printed: the rules that a killed proxy left are taken away.",
        ],
        examples: &[
            ("noctule proxy rules 192.0.2.7 --intercept own", "What is installed for programs of this host."),
            (
                "noctule proxy rules 192.0.2.7 --intercept clients:eth1 --iptables",
                "The same for clients of a router behind eth1, as a script for iptables.",
            ),
            ("noctule proxy rules --remove", "Take the rules away."),
        ],
        files: &[],
        see: &["noctule-proxy(1)"],
    },
    Page {
        name: "doctor",
        description: &["Every finding is good, a note, or a problem with what to do about it; exit status 18 if there is a problem."],
        examples: &[("noctule doctor", "Look at this host."), ("noctule doctor hill.example.org", "Look at the path to that host, too.")],
        files: &[KEY, CONFIG],
        see: &["noctule-perf(1)"],
    },
    Page {
        name: "man",
        description: &["Writes noctule(1), a page for each command, noctule.toml(5) and noctule-config(5)."],
        examples: &[("noctule man man", "Write them into the directory man.")],
        files: &[],
        see: &[],
    },
    Page {
        name: "completions",
        description: &["Hosts are completed from the file of remembered keys and from the user's file of hosts."],
        examples: &[(
            "noctule completions bash",
            "Print those for bash; ~/.local/share/bash-completion/completions/noctule is where it looks for them.",
        )],
        files: &[KNOWN_HOSTS, CONFIG],
        see: &[],
    },
    Page {
        name: "node",
        description: &[
            "Everything that it does stands in one file. init makes a file and a key, add-neighbour adds another node and prints what that node needs, --example prints a file with every key explained.",
        ],
        examples: &[
            ("noctule node init --address 10.9.0.1", "Make a file and a key."),
            ("noctule node --check", "Say what the file means, or what is wrong with it."),
            ("noctule node", "Run until told to end."),
        ],
        files: &[NODE_FILE, ("/etc/noctule/key", "its secret key"), SOCKET],
        see: &["noctule-node-init(1)", "noctule-node-add-neighbour(1)", "noctule-status(1)", "noctule-reload(1)", "noctule.toml(5)"],
    },
    Page {
        name: "node-init",
        description: &[
            "A file that exists is left as it is, and a key that lies beside it is kept. The public key is the only line on standard output.",
        ],
        examples: &[
            ("noctule node init --name home --address 10.9.0.1 --tun 10.9.0.1/24", "A node that carries IP packets."),
            (
                "noctule node init --config hill.toml --listen 5000 --relay --socket hill.sock",
                "Another one on the same host, which forwards.",
            ),
        ],
        files: &[NODE_FILE, ("/etc/noctule/key", "its secret key")],
        see: &["noctule-node(1)", "noctule-node-add-neighbour(1)", "noctule.toml(5)"],
    },
    Page {
        name: "node-add-neighbour",
        description: &[
            "The table is put at the end of the file, if the whole means something then; comments stay. The command for the other node is the only line on standard output.",
        ],
        examples: &[(
            "noctule node add-neighbour hill qdhg43ot4p4kontdusgyxkjrk3n4k3i2dakjllp74kz3brtztrzayhq5 hill.example.org --address 10.9.0.2",
            "Add a node that this one calls.",
        )],
        files: &[NODE_FILE],
        see: &["noctule-node(1)", "noctule-node-init(1)", "noctule.toml(5)"],
    },
    Page {
        name: "status",
        description: &["Asks the node over its control socket, whose place the node's file names."],
        examples: &[
            ("noctule status", "Links, sessions and routes."),
            ("noctule status --watch --flows", "Every flow, again each second, with rates."),
        ],
        files: &[NODE_FILE, SOCKET],
        see: &["noctule-node(1)"],
    },
    Page {
        name: "reload",
        description: &["A file with mistakes changes nothing. What needs a restart is said."],
        examples: &[("noctule reload", "Take over the file.")],
        files: &[NODE_FILE, SOCKET],
        see: &["noctule-node(1)", "noctule.toml(5)"],
    },
];

/// Variables that every command reads.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("NOCTULE_KEY_FILE", "This side's secret key, as --key."),
    ("NOCTULE_PSK_FILE", "The pre-shared key, as --psk."),
    ("NOCTULE_CODE", "The code for --code without one."),
    ("NOCTULE_CONFIG", "The user's file of hosts, as -F; none: no file."),
    ("NOCTULE_LOG", "What to log, as --log-level."),
    ("XDG_CONFIG_HOME, HOME", "Where the user's files lie: $XDG_CONFIG_HOME/noctule, or $HOME/.config/noctule."),
    ("NO_COLOR", "If it is set, the log has no colours."),
];
