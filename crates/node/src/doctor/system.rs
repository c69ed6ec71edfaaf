//! Examines the kernel, the processor, the clocks, and the rights of this user.

use super::Finding;
use std::fs::File;
use std::time::{Duration, Instant};

/// All findings that need no network.
pub fn look() -> Vec<Finding> {
    vec![kernel(), processor(), clock_source(), timers(), wall_clock(), tun(), namespaces()]
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let name = format!("{} {release}", uname.sysname().to_string_lossy());
    match version(&release) {
        Some(v) if v < (4, 18) => Finding::problem(
            "kernel",
            format!("{name}: no segmentation offload for UDP"),
            "use Linux 4.18 or newer; without it every datagram is a system call",
        ),
        Some(v) if v < (5, 0) => {
            Finding::note("kernel", format!("{name}: no receive offload for UDP"), "Linux 5.0 or newer receives many datagrams at once")
        }
        Some(_) => Finding::good("kernel", name),
        None => Finding::note("kernel", name, "noctule is tested on Linux; elsewhere it runs, but slower"),
    }
}

/// Major and minor of a Linux release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn processor() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (coding, sealing) = instructions();
    let found = format!("{cores} cores; coding with {}; sealing with {}", coding.unwrap_or("plain code"), sealing.unwrap_or("plain code"));
    match (coding, sealing) {
        (Some(_), Some(_)) => Finding::good("processor", found),
        (Some(_), None) => Finding::note(
            "processor",
            found,
            "without AES instructions noctule seals with ChaCha20-Poly1305: fast enough for about 1 Gbit/s and core",
        ),
        (None, _) => {
            Finding::note("processor", found, "erasure coding is done without vector instructions: high loss at high rates costs much CPU")
        }
    }
}

/// The vector and the AES instructions that the codes and the ciphers would use.
#[cfg(target_arch = "x86_64")]
fn instructions() -> (Option<&'static str>, Option<&'static str>) {
    let coding = if is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2") {
        Some("GFNI")
    } else if is_x86_feature_detected!("avx2") {
        Some("AVX2")
    } else if is_x86_feature_detected!("ssse3") {
        Some("SSSE3")
    } else {
        None
    };
    (coding, is_x86_feature_detected!("aes").then_some("AES-NI"))
}

#[cfg(not(target_arch = "x86_64"))]
fn instructions() -> (Option<&'static str>, Option<&'static str>) {
    (None, None)
}

fn clock_source() -> Finding {
    let Some(source) = read("/sys/devices/system/clocksource/clocksource0/current_clocksource") else {
        return Finding::note("clock", "the kernel does not say which clock it uses", "nothing, unless CPU use is unexpectedly high");
    };
    match source.as_str() {
        "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" => Finding::problem(
            "clock",
            format!("{source}: each look at the clock is slow or coarse"),
            "boot with clocksource=tsc if the processor's counter is reliable; in a virtual machine, let the host offer kvm-clock or tsc",
        ),
        _ => Finding::good("clock", source),
    }
}

/// Measures how late a thread wakes from short sleeps: median and maximum of some.
fn timers() -> Finding {
    const SLEEP: Duration = Duration::from_millis(1);
    let mut late: Vec<Duration> = (0..40)
        .map(|_| {
            let start = Instant::now();
            std::thread::sleep(SLEEP);
            start.elapsed().saturating_sub(SLEEP)
        })
        .collect();
    late.sort();
    let (median, worst) = (late[late.len() / 2], late[late.len() - 1]);
    let found = format!("wake-ups {} us late, {} us at worst of {}", median.as_micros(), worst.as_micros(), late.len());
    match median > Duration::from_millis(1) {
        true => Finding::problem(
            "timers",
            found,
            "packets cannot be paced well: is the machine overloaded, or does it save power (cpupower frequency-set -g performance)?",
        ),
        false => Finding::good("timers", found),
    }
}

/// Whether the wall clock is synchronised. Only time stamps depend on it: the protocol never compares the clocks of two hosts.
fn wall_clock() -> Finding {
    match is_synchronised() {
        Some(true) => Finding::good("time of day", "synchronised"),
        Some(false) => Finding::note(
            "time of day",
            "not synchronised",
            "only time stamps suffer (--timestamps, traces of two hosts side by side): run chrony or systemd-timesyncd",
        ),
        None => Finding::note("time of day", "cannot be asked about its synchronisation", "only time stamps depend on it"),
    }
}

#[cfg(target_os = "linux")]
fn is_synchronised() -> Option<bool> {
    // SAFETY: all fields are integers, for which zero is a value; no modes are set, so the call only reads.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `timex` is a live structure of the type that the call fills.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    (state >= 0).then_some(state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0)
}

#[cfg(not(target_os = "linux"))]
fn is_synchronised() -> Option<bool> {
    None
}

/// Bits of capabilities(7) that are effective in this process.
fn capabilities() -> u64 {
    let status = read("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;

fn tun() -> Finding {
    let device = File::options().read(true).write(true).open("/dev/net/tun");
    let may_configure = capabilities() & CAP_NET_ADMIN != 0;
    match (device, may_configure) {
        (Ok(_), true) => Finding::good("tunnels", "/dev/net/tun can be opened, interfaces can be configured"),
        (Ok(_), false) => Finding::note(
            "tunnels",
            "/dev/net/tun can be opened, but this user may not configure interfaces",
            "only for tunnels: run them as root, or setcap cap_net_admin+ep on the noctule binary",
        ),
        (Err(e), _) => {
            Finding::note("tunnels", format!("/dev/net/tun: {e}"), "only for tunnels: modprobe tun; in a container, pass the device to it")
        }
    }
}

/// Whether the laboratory could make network namespaces.
fn namespaces() -> Finding {
    if capabilities() & CAP_SYS_ADMIN != 0 {
        // In a thread of its own: the namespace ends with it.
        let made = std::thread::spawn(try_network_namespace).join().unwrap_or_else(|_| Err("a thread died".into()));
        return match made {
            Ok(()) => Finding::good("namespaces", "network namespaces can be made"),
            Err(e) => Finding::note(
                "namespaces",
                format!("a network namespace cannot be made: {e}"),
                "only for noctule-lab; in a container, give it CAP_SYS_ADMIN",
            ),
        };
    }
    let limit = read("/proc/sys/user/max_user_namespaces").and_then(|t| t.parse::<u64>().ok());
    let is_forbidden =
        [("/proc/sys/kernel/unprivileged_userns_clone", "0"), ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")]
            .into_iter()
            .find(|(path, value)| read(path).as_deref() == Some(value));
    match (limit, is_forbidden) {
        (Some(0), _) => Finding::note(
            "namespaces",
            "user namespaces are switched off",
            "only for noctule-lab: sysctl -w user.max_user_namespaces=10000, or run it as root",
        ),
        (_, Some((path, value))) => Finding::note(
            "namespaces",
            format!("{path} is {value}: user namespaces are for root only"),
            "only for noctule-lab: run it as root, or change that setting",
        ),
        (None, _) => Finding::note("namespaces", "this system has no user namespaces", "only for noctule-lab: run it as root on Linux"),
        _ => Finding::good("namespaces", "user namespaces are permitted"),
    }
}

#[cfg(target_os = "linux")]
fn try_network_namespace() -> Result<(), String> {
    // SAFETY: a new network namespace concerns this thread alone, which opens no sockets and ends right away.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) }
}

#[cfg(not(target_os = "linux"))]
fn try_network_namespace() -> Result<(), String> {
    Err("not on this system".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn releases_are_read_as_distributions_write_them() {
        assert_eq!(version("6.8.0-45-generic"), Some((6, 8)));
        assert_eq!(version("5.15.153.1-microsoft-standard-WSL2"), Some((5, 15)));
        assert_eq!(version("4.4+"), Some((4, 4)));
        assert_eq!(version("rolling"), None);
    }

    #[test]
    fn whatever_is_not_good_comes_with_advice() {
        for finding in look() {
            assert_eq!(finding.level == Level::Good, finding.advice.is_none(), "{finding:?}");
        }
    }
}
