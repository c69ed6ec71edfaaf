//! Every table and key of the node's file, with what it takes and means: noctule.toml(5) is made of this, and keys that are not here are refused. A
//! test compares it with what the file is read into.

/// A key of a table.
pub struct Key {
    pub name: &'static str,
    /// The value if it is left out; `needed`, if it must not be.
    pub default: &'static str,
    pub text: &'static str,
}

/// A table: `[name]`, or `[[name]]` if there may be several.
pub struct Table {
    pub name: &'static str,
    pub is_list: bool,
    pub text: &'static str,
    pub keys: &'static [Key],
}

const fn key(name: &'static str, default: &'static str, text: &'static str) -> Key {
    Key { name, default, text }
}

impl Table {
    /// As it is written.
    pub fn heading(&self) -> String {
        match self.is_list {
            true => format!("[[{}]]", self.name),
            false => format!("[{}]", self.name),
        }
    }
}

pub const TABLES: [Table; 9] = [
    Table {
        name: "node",
        is_list: false,
        text: "This node.",
        keys: &[
            key("name", "the host's name", "For logs and status."),
            key("key", "needed", "File of the secret key (noctule keygen -o FILE)."),
            key(
                "listen",
                "\"[::]:4242\"",
                "Where to listen (UDP): an address of this host, a port, or both (\"192.0.2.1:5000\", \"192.0.2.1\", \":5000\", \"5000\"). [::] serves IPv4 too. Or a list of different addresses: each neighbour is answered from the one that it called.",
            ),
            key("addresses", "none", "This node's addresses in the overlay, without prefix length: a list."),
            key("relay", "false", "Forward flows of others."),
            key(
                "answer",
                "\"known\"",
                "Whose first packets are answered: \"known\", those that carry a proof of this node's public key; \"anyone\": a host that asks learns that a node is there, its key and its version.",
            ),
            key(
                "psk",
                "none",
                "File of a pre-shared key (noctule keygen --shared) that all neighbours must have too, those with one of their own excepted.",
            ),
            key("congestion", "\"model\"", "Congestion control: model, bbr, cubic, reno, vegas, gcc, none, or rate:20mbit."),
            key("idle-timeout", "\"30s\"", "Silence that ends a link."),
            key(
                "keep-alive",
                "a third of idle-timeout",
                "Longest time without a packet of this node on a link in use; shorter where a NAT or firewall on the path forgets sooner (\"25s\" suits most).",
            ),
            key("state", "\"/var/lib/noctule/one-way\"", "File in which streams in one direction keep what they must not forget."),
        ],
    },
    Table {
        name: "neighbour",
        is_list: true,
        text: "A node with a link to this one.",
        keys: &[
            key("name", "needed", "By which this file, logs and status name it."),
            key("key", "needed", "Its public key."),
            key("endpoint", "it calls us", "HOST or HOST:PORT, called for ever. Names are looked up at every call."),
            key(
                "paths",
                "none",
                "Further paths to it, used at the same time: \"FROM\" (an address of this host), \"FROM,TO\" or \",TO\" (another address of its).",
            ),
            key("addresses", "none", "Its addresses in the overlay."),
            key("prefixes", "none", "Networks behind it."),
            key("next-hops", "none", "Further addresses by which the kernel's routes name it."),
            key("psk", "[node] psk", "File of a pre-shared key for this neighbour alone."),
            key("mtu", "the device's", "Largest IP packet to send to it, 576 to 9000 bytes."),
        ],
    },
    Table {
        name: "remote",
        is_list: true,
        text: "A node that is reached over others.",
        keys: &[
            key("name", "needed", "By which this file, logs and status name it."),
            key("key", "needed", "Its public key."),
            key("addresses", "needed", "Its addresses in the overlay."),
            key("prefixes", "none", "Networks behind it."),
            key("mtu", "the device's", "Largest IP packet to send to it, 576 to 9000 bytes."),
        ],
    },
    Table {
        name: "route",
        is_list: true,
        text: "A route to nodes that are no neighbours.",
        keys: &[
            key("to", "needed", "A prefix of node addresses, or an address."),
            key("via", "needed", "The name of the neighbour that leads there."),
            key("metric", "0", "Smaller first, equal ones together; the next one when a neighbour's link is down."),
        ],
    },
    Table {
        name: "kernel-routes",
        is_list: false,
        text: "Routes from a table of the kernel, as a routing daemon writes it.",
        keys: &[
            key("table", "needed", "Number of the table; 254 is the main one."),
            key("interface", "any", "Only routes over this device."),
        ],
    },
    Table {
        name: "one-way",
        is_list: true,
        text: "A stream over links that carry in one direction only: to a node, from nodes, or, with neither, passed on for others.",
        keys: &[
            key("to", "none", "The node that the stream is for; endpoint, rate and loss are needed."),
            key("from", "none", "A node, or a list, whose streams are taken; listen is needed."),
            key("listen", "none", "Where streams come (UDP); a port that nothing else of this node has."),
            key("endpoint", "none", "ADDRESS:PORT to send to: the node itself, or the first relay."),
            key("rate", "none", "Of the path to endpoint, headers counted (\"20mbit\"). It is kept, whatever else is there."),
            key("loss", "none", "Expected, of each link on the route in turn: \"5%\", [\"5%\", \"0.5%\"]; of a relay, of its next link."),
            key(
                "delay",
                "\"100ms\"",
                "How long a packet that was lost waits for others of its block, 10 ms to 10 s; longer costs less redundancy.",
            ),
            key("psk", "none", "File of a pre-shared key of both ends (relays need none)."),
            key("sources", "anywhere", "Of from and relays: addresses or networks that datagrams may come from."),
            key("for", "anybody", "Of a relay: names or public keys of the nodes whose streams it passes on."),
            key("symbol", "1472", "Of a relay: bytes of the largest symbol that passes."),
        ],
    },
    Table {
        name: "tun",
        is_list: false,
        text: "The device that carries IP packets; without this table there is none.",
        keys: &[
            key("name", "\"noctule0\"", "Of the device."),
            key("mtu", "1380", "Largest IP packet, 576 to 9000 bytes."),
            key("addresses", "none", "Of the device, with prefix length: \"10.9.0.1/24\"."),
            key("install-routes", "true", "Set kernel routes and rules to every node's addresses and prefixes."),
            key(
                "lan",
                "\"bypass\", \"private\" for a full tunnel",
                "Networks that stay outside the prefixes around them: \"bypass\", those that the host knows better; \"private\", of these only private ones; \"tunnel\", none.",
            ),
            key(
                "tcp",
                "\"carry\"",
                "How TCP goes: \"carry\", as packets; \"split\", each connection as a stream to nodes whose file says the same, which is faster over lossy links. Needs nft.",
            ),
            key("datagram-lifetime", "\"500ms\"", "What is not TCP is given up after this long."),
            key("tcp-lifetime", "\"2s\"", "TCP packets are."),
            key("flow-idle", "\"60s\"", "A flow without packets is closed."),
            key("max-flows", "1024", "Flows towards one node; more share."),
        ],
    },
    Table {
        name: "limits",
        is_list: false,
        text: "What the node may use.",
        keys: &[
            key("memory", "\"512MiB\"", "Of all flows."),
            key("flow-memory", "\"128MiB\"", "Of one flow."),
            key("links", "1024", "Links."),
            key("relayed-flows", "4096", "Flows of others; each direction counts."),
            key("sessions", "1024", "Sessions."),
            key("trees", "64", "Objects that it passes on to many at a time; a quarter of them for one neighbour."),
            key("one-way-memory", "\"64MiB\"", "Of [[one-way]] entries that pass streams on, in equal parts."),
        ],
    },
    Table {
        name: "control",
        is_list: false,
        text: "Where noctule status and noctule reload ask.",
        keys: &[key(
            "socket",
            "\"/run/noctule/node.sock\"",
            "Unix socket; for its owner and group only. Of several nodes on one host each needs its own.",
        )],
    },
];

/// Prometheus; apart, for this table switches something on by being there.
pub const METRICS: Table = Table {
    name: "metrics",
    is_list: false,
    text: "Prometheus at /metrics; off without the table.",
    keys: &[
        key("listen", "\"127.0.0.1:9494\"", "Where it may ask (TCP): an address, a port, or both; a port alone is of this host only."),
        key("names", "none", "Names of this host under which it may be asked for, besides its addresses and localhost."),
    ],
};

/// All of them.
pub fn tables() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().chain([&METRICS])
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;
    use serde::de::{Deserialize, Deserializer, Error, Visitor};

    /// Asks a struct for the names of its fields, and gives it nothing.
    struct Fields<'a>(&'a mut Vec<&'static str>);

    impl<'de> Deserializer<'de> for Fields<'_> {
        type Error = serde::de::value::Error;
        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            self.0.extend(fields);
            Err(Error::custom("asked"))
        }
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(Error::custom("no struct"))
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple tuple_struct
            map enum identifier ignored_any
        }
    }

    fn fields<T: for<'de> Deserialize<'de>>() -> Vec<&'static str> {
        let mut names = Vec::new();
        assert!(T::deserialize(Fields(&mut names)).is_err());
        names.sort_unstable();
        names
    }

    #[test]
    fn the_manual_knows_what_the_file_is_read_into_and_nothing_else() {
        let read = [
            ("node", fields::<file::NodeTable>()),
            ("neighbour", fields::<file::NeighbourTable>()),
            ("remote", fields::<file::RemoteTable>()),
            ("route", fields::<file::RouteTable>()),
            ("kernel-routes", fields::<file::KernelTable>()),
            ("one-way", fields::<file::OneWayTable>()),
            ("tun", fields::<file::TunTable>()),
            ("limits", fields::<file::LimitsTable>()),
            ("control", fields::<file::ControlTable>()),
            ("metrics", fields::<file::MetricsTable>()),
        ];
        let mut names: Vec<_> = tables().map(|t| t.name).collect();
        names.sort_unstable();
        assert_eq!(names, fields::<file::File>());
        for (table, expected) in read {
            let described = tables().find(|t| t.name == table).unwrap();
            let mut names: Vec<_> = described.keys.iter().map(|k| k.name).collect();
            names.sort_unstable();
            assert_eq!(names, expected, "{table}");
        }
    }

    /// The guide has the same table for readers of the tree.
    #[test]
    fn the_guide_names_every_key() {
        let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/node.md")).unwrap();
        let file = guide.split("## The file").nth(1).unwrap();
        for table in tables() {
            for key in table.keys {
                assert!(
                    file.contains(&format!("`{}`", key.name)) || file.contains(&format!(" {}`", key.name)),
                    "{} {}",
                    table.heading(),
                    key.name
                );
            }
        }
    }
}
