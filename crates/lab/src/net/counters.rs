//! Bytes that passed a device as the kernel counts them: the same measure for netem and for the emulator.

use std::io;

use super::namespace::Namespace;

/// Counters of one device; bytes are IP bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceCounters {
    /// Bytes that came in.
    pub received: u64,
    /// Bytes that went out.
    pub sent: u64,
}

impl DeviceCounters {
    /// Reads the counters of `device` inside the namespace. `link_header` is the size of the header that the device
    /// counts and IP does not: 14 for veth, 0 for TUN.
    pub fn read(namespace: &Namespace, device: &str, link_header: u64) -> io::Result<Self> {
        // /proc/net would be that of the process's first thread.
        let text = namespace.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        Self::parse(&text, device, link_header)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no counters of device {device}")))
    }

    /// proc_pid_net(5): "name: rx bytes, packets, errs, drop, fifo, frame, compressed, multicast, tx bytes, packets, …".
    fn parse(text: &str, device: &str, link_header: u64) -> Option<Self> {
        let fields: Vec<u64> = text
            .lines()
            .filter_map(|line| line.trim().split_once(':'))
            .find(|(name, _)| *name == device)?
            .1
            .split_whitespace()
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        let ip_bytes = |at: usize| Some(fields.get(at)?.saturating_sub(link_header * fields.get(at + 1)?));
        Some(Self { received: ip_bytes(0)?, sent: ip_bytes(8)? })
    }

    /// What was counted since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self { received: self.received.saturating_sub(earlier.received), sent: self.sent.saturating_sub(earlier.sent) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
        \x20   lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n\
        \x20right:    1514       1    0    0    0     0          0         0     2028       2    0    0    0     0       0          0\n";

    #[test]
    fn ethernet_headers_are_taken_off() {
        let counters = DeviceCounters::parse(DEV, "right", 14).unwrap();
        assert_eq!(counters, DeviceCounters { received: 1500, sent: 2000 });
        assert_eq!(counters.since(DeviceCounters { received: 500, sent: 0 }).received, 1000);
    }

    #[test]
    fn missing_device_and_broken_lines_give_nothing() {
        assert!(DeviceCounters::parse(DEV, "left", 14).is_none());
        assert!(DeviceCounters::parse("right: 1 2 x", "right", 14).is_none());
        assert!(DeviceCounters::parse("right: 1 2", "right", 14).is_none());
    }
}
