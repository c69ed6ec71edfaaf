//! Programs in C and C++ that use the library. They are compiled and linked as by a user, and run over loopback under sanitizers and valgrind.
//!
//! Needed: a C and a C++ compiler (`cc`, `c++`) with their sanitizers, and valgrind for the tests that say so (Debian: build-essential, valgrind).

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use support::{has_cmake, here, install, libraries, output, succeed};

const SANITIZED: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Compiles a program and returns its path.
fn compile(compiler: &str, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let place = libraries();
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    succeed(
        Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-g", "-pthread"])
            .args(flags)
            .arg(here().join(source))
            .arg("-I")
            .arg(here().join("include"))
            .arg("-I")
            .arg(here().join("../cpp"))
            .arg("-L")
            .arg(&place)
            .arg(format!("-Wl,-rpath,{}", place.display()))
            .args(["-lnoctule_c", "-o"])
            .arg(&out),
    );
    out
}

/// Programs by their names, with sanitizers or without.
type Programs = BTreeMap<(&'static str, bool), Arc<OnceLock<PathBuf>>>;

/// A program of this name with sanitizers, or without, compiled once.
fn program(source: &'static str, is_sanitized: bool) -> PathBuf {
    static BUILT: Mutex<Programs> = Mutex::new(BTreeMap::new());
    let cell = Arc::clone(BUILT.lock().unwrap_or_else(PoisonError::into_inner).entry((source, is_sanitized)).or_default());
    let (words, flags) = if is_sanitized { ("sanitized", SANITIZED) } else { ("plain", [].as_slice()) };
    let make = || compile("cc", &format!("tests/programs/{source}.c"), &format!("{source}-{words}"), &[flags, &["-std=gnu11"]].concat());
    cell.get_or_init(make).clone()
}

fn run_sanitized(source: &'static str, test: &str) {
    succeed(Command::new(program(source, true)).arg(test));
}

#[test]
fn ten_megabytes_come_back_by_a_stream_in_the_programs_own_loop() {
    run_sanitized("poll", "echo");
}

#[test]
fn messages_keep_order_priority_and_lifetime() {
    run_sanitized("poll", "messages");
}

#[test]
fn datagrams_arrive_and_wait_for_a_buffer_that_is_large_enough() {
    run_sanitized("poll", "datagrams");
}

#[test]
fn a_program_with_media_is_told_the_rate_to_produce() {
    run_sanitized("poll", "target_rate");
}

#[test]
fn a_wrong_pin_an_unknown_host_and_a_stranger_are_told_apart() {
    run_sanitized("poll", "connecting");
}

#[test]
fn null_and_wrong_lengths_are_errors_with_words() {
    run_sanitized("poll", "arguments");
}

#[test]
fn every_call_knows_a_handle_that_was_freed() {
    run_sanitized("poll", "closed_handles");
}

#[test]
fn the_descriptor_is_readable_while_an_event_waits() {
    run_sanitized("poll", "descriptor");
}

#[test]
fn a_thousand_connections_leave_no_descriptor_thread_or_memory_behind() {
    eprintln!("{}", succeed(Command::new(program("poll", false)).arg("thousand")));
}

#[test]
fn ten_megabytes_come_back_by_callbacks() {
    run_sanitized("callbacks", "echo");
}

#[test]
fn a_callback_may_free_its_flow_its_session_and_the_context() {
    run_sanitized("callbacks", "destroy");
}

#[test]
fn nothing_is_told_of_a_handle_after_callbacks_were_waited_for() {
    run_sanitized("callbacks", "threads");
}

#[test]
fn a_callback_that_blocks_does_not_stop_the_network() {
    run_sanitized("callbacks", "blocking");
}

#[test]
fn threads_of_a_program_share_flows() {
    run_sanitized("shared", "flows");
}

#[test]
fn threads_that_wait_are_told_of_a_close_by_another() {
    run_sanitized("shared", "closing");
}

#[test]
fn of_several_threads_that_free_a_handle_one_does() {
    run_sanitized("shared", "freeing");
}

#[test]
fn threads_open_and_free_sessions_while_the_library_calls_back() {
    run_sanitized("shared", "callbacks");
}

/// The library is compiled without sanitizers; valgrind finds invalid reads and writes, and leaks, in its code too.
fn run_in_valgrind(source: &'static str, test: &str) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("*** SKIPPED: there is no valgrind here");
        return;
    }
    let report = succeed(
        Command::new("valgrind")
            .args(["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite", "--fair-sched=yes"])
            .arg(format!("--suppressions={}", here().join("tests/programs/valgrind.supp").display()))
            .arg(program(source, false))
            .arg(test),
    );
    assert!(report.contains("ERROR SUMMARY: 0 errors"), "{report}");
}

#[test]
fn valgrind_finds_nothing_in_wrong_arguments() {
    run_in_valgrind("poll", "arguments");
}

#[test]
fn valgrind_finds_nothing_in_the_use_of_freed_handles() {
    run_in_valgrind("poll", "closed_handles");
}

#[test]
fn valgrind_finds_nothing_in_callbacks_that_free_everything() {
    run_in_valgrind("callbacks", "destroy");
}

/// The header is for programs without exceptions, too.
const CPP: &[&str] = &["-std=c++17", "-fno-exceptions"];

fn run_objects(test: &str) {
    static OBJECTS: OnceLock<PathBuf> = OnceLock::new();
    let flags = [SANITIZED, CPP].concat();
    let program = OBJECTS.get_or_init(|| compile("c++", "tests/programs/objects.cpp", "objects", &flags));
    succeed(Command::new(program).arg(test));
}

#[test]
fn objects_of_cpp_can_be_moved_and_keep_their_callbacks() {
    run_objects("messages");
}

#[test]
fn a_cpp_callback_may_destroy_the_object_that_it_belongs_to() {
    run_objects("destroy");
}

#[test]
fn cpp_objects_may_be_destroyed_while_the_librarys_thread_calls_back() {
    run_objects("threads");
}

#[test]
fn errors_of_cpp_are_values_with_words() {
    run_objects("errors");
}

#[test]
fn an_exception_that_leaves_a_callback_ends_the_process() {
    let program = compile("c++", "tests/programs/throws.cpp", "throws", &["-std=c++17"]);
    for case in ["object", "function"] {
        let out = output(Command::new(&program).arg(case));
        assert_eq!(out.status.signal(), Some(libc::SIGABRT), "{case}: {out:?}");
        assert!(out.stdout.is_empty(), "{case}: {out:?}");
    }
}

#[test]
fn a_thousand_connections_of_cpp_leave_no_descriptor_thread_or_memory_behind() {
    // Without sanitizers, whose allocator tells no figures.
    let program = compile("c++", "tests/programs/objects.cpp", "objects-plain", CPP);
    eprintln!("{}", succeed(Command::new(program).arg("thousand")));
}

/// A server of the examples, ended with the test.
struct Server {
    child: Child,
    /// Kept open, as the server writes more lines than the test reads.
    _words: BufReader<ChildStdout>,
    address: String,
    key: String,
}

impl Server {
    fn start(program: &Path, key_file: &Path) -> Self {
        let mut child = Command::new(program).args(["127.0.0.1:0".as_ref(), key_file.as_os_str()]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut words = BufReader::new(child.stdout.take().unwrap());
        words.read_line(&mut line).unwrap();
        let (address, key) = line.trim().split_once(' ').unwrap_or_else(|| panic!("the server says {line:?}"));
        Self { address: address.to_owned(), key: key.to_owned(), child, _words: words }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The examples, in C and in C++, talk to each other; errors are printed as sentences.
#[test]
fn the_echo_examples_understand_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("key");
    std::fs::write(&key_file, noctule::SecretKey::from_bytes([9; 32]).to_text()).unwrap();
    std::fs::set_permissions(&key_file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let c = |name: &str| compile("cc", &format!("examples/{name}.c"), &format!("{name}-c"), &["-std=gnu11"]);
    let cpp = |name: &str| compile("c++", &format!("../cpp/examples/{name}.cpp"), &format!("{name}-cpp"), &["-std=c++17"]);
    let clients = [c("echo_client"), cpp("echo_client")];
    let input: Vec<u8> = (0..1_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let input_file = directory.path().join("input");
    std::fs::write(&input_file, &input).unwrap();
    for server in [c("echo_server"), cpp("echo_server")] {
        let server = Server::start(&server, &key_file);
        for client in &clients {
            let run = |key: &str, stdin: Stdio| output(Command::new(client).args([&*server.address, key]).stdin(stdin));
            let out = run(&server.key, std::fs::File::open(&input_file).unwrap().into());
            assert!(out.status.success(), "{}: {}", client.display(), String::from_utf8_lossy(&out.stderr));
            assert!(out.stdout == input, "{}: {} bytes came back", client.display(), out.stdout.len());
        }
    }
    // An invalid key.
    let out = output(Command::new(&clients[1]).args(["127.0.0.1:1", "x"]).stdin(Stdio::null()));
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&out.stderr), "echo_client: cannot connect: key: a key has 56 characters, this has 1\n");
}

#[test]
fn the_example_that_measures_tells_what_the_receiver_read() {
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("key");
    let secret = noctule::SecretKey::from_bytes([8; 32]);
    std::fs::write(&key_file, secret.to_text()).unwrap();
    std::fs::set_permissions(&key_file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let program = compile("cc", "examples/goodput.c", "goodput-c", &["-std=gnu11"]);
    let address = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let receiver = Command::new(&program).args([address.as_ref(), key_file.as_os_str()]).stdout(Stdio::piped()).spawn().unwrap();
    // The receiver may open its port later than the first attempt.
    let sent = (0..50).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        output(Command::new(&program).args([&*address, &*secret.public().to_string(), "0.2"])).status.success()
    });
    assert!(sent);
    let out = receiver.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let rate = text.lines().last().and_then(|line| line.split_once(" Mbit/s in ")?.0.parse::<f64>().ok());
    assert!(out.status.success() && rate.is_some_and(|rate| rate > 0.0), "{text}");
}

/// The first program of a guide's page, compiled unchanged.
fn guide(page: &str, fence: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let text = std::fs::read_to_string(here().join("../../docs/guide").join(page)).unwrap();
    let code = text.split(&format!("```{fence}\n")).nth(1).unwrap().split("```").next().unwrap();
    let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("guide.{fence}"));
    std::fs::write(&source, code).unwrap();
    compile(compiler, source.to_str().unwrap(), &format!("guide-{fence}"), flags)
}

#[test]
fn the_programs_of_the_guide_run() {
    let c = guide("c.md", "c", "cc", &["-std=c11"]);
    assert_eq!(succeed(&mut Command::new(c)), "across a lossy link\n");
    let cpp = guide("cpp.md", "cpp", "c++", &["-std=c++17"]);
    assert_eq!(succeed(&mut Command::new(cpp)), "across a lossy link\n");
}

#[test]
fn cmake_finds_the_package_and_builds_the_examples() {
    if !has_cmake() {
        return;
    }
    let prefix = tempfile::tempdir().unwrap();
    install(prefix.path());
    let build = prefix.path().join("build");
    succeed(
        Command::new("cmake")
            .arg("-S")
            .arg(here().join("../cpp/examples"))
            .arg("-B")
            .arg(&build)
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.path().display())),
    );
    succeed(Command::new("cmake").arg("--build").arg(&build));
    let out = output(Command::new(build.join("echo_client_c")).env("LD_LIBRARY_PATH", prefix.path().join("lib")));
    assert_eq!((out.status.code(), &*String::from_utf8_lossy(&out.stderr)), (Some(2), "usage: echo_client HOST:PORT PUBLIC-KEY\n"));
}

/// The version that programs ask CMake for is that of the library.
#[test]
fn cmake_knows_the_version_of_the_package() {
    if !has_cmake() {
        return;
    }
    let prefix = tempfile::tempdir().unwrap();
    install(prefix.path());
    let find = |version: &str| {
        let source = prefix.path().join(format!("asks-{version}"));
        std::fs::create_dir_all(&source).unwrap();
        let text = format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(asks NONE)\nfind_package(noctule {version} REQUIRED)\n\
             message(STATUS \"found ${{noctule_VERSION}}\")\n"
        );
        std::fs::write(source.join("CMakeLists.txt"), text).unwrap();
        let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix.path().display());
        output(Command::new("cmake").arg("-S").arg(&source).arg("-B").arg(source.join("build")).arg(prefix))
    };
    let version = env!("CARGO_PKG_VERSION");
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR").parse::<u32>().unwrap());
    for wanted in [major.to_owned(), format!("{major}.{minor}"), version.to_owned()] {
        let out = find(&wanted);
        assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains(&format!("found {version}")), "{wanted}: {out:?}");
    }
    for wanted in [format!("{major}.{}", minor + 1), format!("{}.0", major.parse::<u32>().unwrap() + 1)] {
        assert!(!find(&wanted).status.success(), "{wanted}");
    }
}
