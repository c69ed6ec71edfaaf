//! `Debug` of types that hold keys as plain bytes. It is written by hand and shows chosen fields only, so that no key reaches a log or a panic's message.

use crate::blind;
use crate::config::NodeConfig;
use crate::crypto::PreSharedKeys;
use crate::object::one_way;
use core::fmt;

macro_rules! debug_without_keys {
    ($($type:ty, $name:literal { $($field:ident),* };)*) => {
        $(impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct($name)$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        })*
    };
}

debug_without_keys! {
    NodeConfig, "NodeConfig" { congestion, max_datagram, idle_timeout, max_links, max_sessions, authorised, accept, plaintext };
    PreSharedKeys<'_>, "PreSharedKeys" {};
    blind::SourceConfig, "SourceConfig" { stream, shape, plan, rate };
    blind::SenderConfig, "SenderConfig" { receiver, shape, plan, rate };
    blind::Sender, "Sender" {};
    blind::Receiver, "Receiver" {};
    blind::Announcement, "Announcement" { stamp, stream, shape, block };
    one_way::Announcement, "Announcement" { root, layout };
}

#[cfg(test)]
mod tests {
    use crate::NodeConfig;
    use crate::blind::{Plan, SenderConfig, Shape, SourceConfig, StreamName};
    use crate::crypto::{PublicKey, RawKey, SecretKey, SharedKey};
    use crate::units::Bandwidth;
    use std::fmt::Debug;

    /// A byte that is unlikely to stand elsewhere in these structures, in decimal or hexadecimal.
    const BYTE: u8 = 0xa7;
    const KEY: [u8; 32] = [BYTE; 32];

    fn shared() -> SharedKey {
        SharedKey::from_bytes(KEY)
    }

    fn tells_nothing(what: &dyn Debug) {
        for text in [format!("{what:?}"), format!("{what:#?}"), format!("{what:x?}")] {
            for shown in ["167, 167", "a7, a7", "a7a7", "167,\n", "a7,\n"] {
                assert!(!text.contains(shown), "{text}");
            }
        }
    }

    #[test]
    fn no_configuration_shows_a_key() {
        let (secret, receiver) = (SecretKey::from_bytes(KEY), PublicKey([1; 32]));
        let node = NodeConfig {
            psk: Some(shared()),
            session_psk: Some(shared()),
            neighbour_psks: [(receiver, shared())].into(),
            ..NodeConfig::default()
        };
        tells_nothing(&node);
        tells_nothing(&(RawKey::new(KEY), shared(), secret.clone()));
        let shape = Shape::new(64, 8, 1, 1000).unwrap();
        let (plan, rate) = (Plan::new(&shape, &[]).unwrap(), Bandwidth::from_bytes_per_sec(1e6));
        let sender =
            SenderConfig { secret, receiver, psk: Some(shared()), shape, plan, rate, patience: std::time::Duration::ZERO, renew_after: 1 };
        tells_nothing(&sender);
        tells_nothing(&SourceConfig { stream: StreamName([0; 4]), shape, plan, key: KEY, rate, patience: None });
    }

    /// A type without `Drop` would leave its bytes in memory.
    fn is_wiped<T>(_: &T) {
        assert!(core::mem::needs_drop::<T>());
    }

    #[test]
    fn shared_keys_are_wiped_where_configurations_hold_them() {
        let node = NodeConfig::default();
        is_wiped(&node.psk);
        is_wiped(&node.session_psk);
        node.neighbour_psks.values().next().inspect(|key| is_wiped(*key));
        assert_eq!(shared(), shared());
        assert_ne!(shared(), SharedKey::from_bytes([0; 32]));
    }
}
