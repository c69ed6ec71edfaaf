//! Measures kcptun as its users start it for speed: `fast2`, AES-128, no compression, FEC 10+3, windows set by hand, its largest MTU.
//! The TCP source before it and the TCP sink behind it are threads of this process.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{BLOCK, Outcome, reap};

const SERVER: &str = "kcptun-server";
const CLIENT: &str = "kcptun-client";
const COMMON: [&str; 17] = [
    "--key", "loopback", "--crypt", "aes-128", "--mode", "fast2", "--mtu", "1400", "--nocomp", "--ds", "10", "--ps", "3", "--sndwnd",
    "4096", "--rcvwnd", "4096",
];
const OPEN: Duration = Duration::from_secs(10);

pub fn is_installed() -> bool {
    let found = |name: &str| std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
    found(SERVER) && found(CLIENT)
}

fn start(program: &str, arguments: &[&str]) -> Result<Child, String> {
    Command::new(program)
        .args(arguments)
        .args(COMMON)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot start {program}: {e}"))
}

fn free_port() -> Result<u16, String> {
    Ok(TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(|e| e.to_string())?.port())
}

pub fn run(seconds: f64) -> Result<Outcome, String> {
    let sink = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let target = sink.local_addr().map_err(|e| e.to_string())?.to_string();
    let (udp, tcp) = (format!("127.0.0.1:{}", free_port()?), format!("127.0.0.1:{}", free_port()?));
    let mut server = start(SERVER, &["-l", &udp, "-t", &target])?;
    let mut client = match start(CLIENT, &["-l", &tcp, "-r", &udp]) {
        Ok(client) => client,
        Err(error) => {
            let _ = server.kill();
            return Err(error);
        }
    };
    let result = transfer(&sink, &tcp, seconds);
    let _ = client.kill();
    let _ = server.kill();
    let cpu = reap(client)? + reap(server)?;
    let (bytes, seconds) = result?;
    Ok(Outcome { bytes, seconds, cpu })
}

fn transfer(sink: &TcpListener, tcp: &str, seconds: f64) -> Result<(u64, f64), String> {
    let begin = Instant::now();
    let mut source = loop {
        match TcpStream::connect(tcp) {
            Ok(stream) => break stream,
            Err(error) if begin.elapsed() > OPEN => return Err(format!("kcptun's client does not listen: {error}")),
            Err(_) => sleep(Duration::from_millis(20)),
        }
    };
    source.set_write_timeout(Some(Duration::from_millis(200))).map_err(|e| e.to_string())?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let (block, end) = (vec![0x5a; BLOCK], Instant::now() + Duration::from_secs_f64(seconds));
            // A timeout is no failure here: the tunnel is full.
            while Instant::now() < end {
                let _ = source.write(&block);
            }
        });
        let (mut arriving, _) = sink.accept().map_err(|e| e.to_string())?;
        arriving.set_read_timeout(Some(Duration::from_millis(500))).map_err(|e| e.to_string())?;
        let (mut bytes, mut first, mut block) = (0u64, None, vec![0; BLOCK]);
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            // A tunnel that stalls is measured to the end all the same: time without bytes lowers its rate.
            match arriving.read(&mut block) {
                Ok(0) => break,
                Ok(n) => bytes += n as u64,
                Err(_) => continue,
            }
            first.get_or_insert_with(Instant::now);
        }
        let taken = first.map_or(0.0, |first| first.elapsed().as_secs_f64());
        sending.join().map_err(|_| "the source ended badly")?;
        Ok((bytes, taken))
    })
}
