//! The page as programs use it: every route as its OpenAPI file has it, refused requests, and a real server with runs that it starts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use noctule_lab::page::guard::Guard;
use noctule_lab::page::routes::{Page, router, table};
use noctule_lab::page::runs::Runs;
use noctule_lab::page::store::Store;
use noctule_lab::page::tables::Tables;
use noctule_lab::page::{assets, guard};
use noctule_lab::scenario::ScenarioFile;
use noctule_lab::sweep::samples::{Head, SampleFile};
use noctule_lab::sweep::{Build, Cell, Folder, Record, folder::Taken};
use serde_json::{Value, json};
use tower::ServiceExt;

const LAB: &str = env!("CARGO_BIN_EXE_noctule-lab");
/// Long enough for any machine; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Small cells, run for real, in a folder `name`.
fn run_cells(root: &Path, name: &str, build: &Build) {
    let text = "name = \"small\"\n[link]\nrate = \"2mbit\"\ndelay = \"5ms\"\n[run]\nseconds = \"3s\"\nwarmup = \"1s\"\n[grid]\nloss = [\"0%\", \"2%\"]\n";
    let cases = toml::from_str::<ScenarioFile>(text).unwrap().cases(true).unwrap();
    let folder = Folder::open(&root.join(name)).unwrap();
    for (place, cell) in cases.into_iter().map(Cell::from).enumerate() {
        let id = build.id(&cell);
        let Taken::Mine(claim) = folder.take(&id, false).unwrap() else { panic!("claimed") };
        let measured = cell.measure();
        claim.keep(&Record { id, build: build.name().to_owned(), place, cell, measured }).unwrap();
    }
}

struct Api {
    router: axum::Router,
    dir: Arc<tempfile::TempDir>,
    _end: tokio::sync::watch::Sender<bool>,
}

/// A server over a folder, without a socket; what it starts is `program`.
fn api(program: &str) -> Api {
    api_of(program, 1)
}

/// The same, with places for so many runs.
fn api_of(program: &str, most: usize) -> Api {
    api_over(Arc::new(tempfile::tempdir().unwrap()), program, most)
}

/// The same over a folder that another one serves as well.
fn api_over(dir: Arc<tempfile::TempDir>, program: &str, most: usize) -> Api {
    let (end, ends) = tokio::sync::watch::channel(false);
    let store = Store::new(dir.path(), Build::named("test"));
    let page = Page::new(store, Runs::new(program.as_ref(), most), Tables::new(&[]).unwrap(), None, ends);
    let guard = Guard::new("127.0.0.1:1".parse().unwrap(), None, &[]).unwrap();
    Api { router: router(Arc::new(page), guard), dir, _end: end }
}

impl Api {
    /// Status, kind and text of an answer.
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, String) {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
        let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned()).unwrap_or_default();
        assert!(response.headers()["content-security-policy"].to_str().unwrap().contains("script-src 'self';"));
        let status = response.status().as_u16();
        let text = to_bytes(response.into_body(), 1 << 24).await.unwrap();
        (status, kind, String::from_utf8(text.into()).unwrap())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let (status, kind, text) = self.ask("GET", path, &[], "").await;
        assert_eq!(kind, "application/json", "{path}: {text}");
        (status, serde_json::from_str(&text).unwrap())
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let headers = [(guard::HEADER, "1"), ("content-type", "application/json")];
        let (status, kind, text) = self.ask("POST", path, &headers, &body.to_string()).await;
        assert_eq!(kind, "application/json", "{path}: {text}");
        (status, serde_json::from_str(&text).unwrap())
    }
}

/// Whether a value is as a schema says, as far as the file uses schemas: in words where not.
fn fits(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        return fits(root, root.pointer(&name[1..]).ok_or(format!("{name} is nowhere"))?, value, at);
    }
    for several in ["anyOf", "oneOf"] {
        if let Some(all) = schema[several].as_array() {
            let tried: Vec<_> = all.iter().map(|one| fits(root, one, value, at)).collect();
            return if tried.iter().any(Result::is_ok) { Ok(()) } else { Err(format!("{at}: {tried:?}")) };
        }
    }
    if let Some(all) = schema["enum"].as_array() {
        return if all.contains(value) { Ok(()) } else { Err(format!("{at}: {value} is none of {all:?}")) };
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return Err(format!("{at}: a schema without a type")),
    };
    let is_of = |kind: &&str| match *kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    if !kinds.iter().any(is_of) {
        return Err(format!("{at}: {value} is no {kinds:?}"));
    }
    if let Some(items) = value.as_array() {
        for (i, item) in items.iter().enumerate() {
            fits(root, &schema["items"], item, &format!("{at}/{i}"))?;
        }
    }
    if let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            object.get(name).ok_or_else(|| format!("{at}: {name} is missing"))?;
        }
        for (name, value) in object {
            let schema = properties.get(name).ok_or_else(|| format!("{at}: {name} is not in the file"))?;
            fits(root, schema, value, &format!("{at}/{name}"))?;
        }
    }
    Ok(())
}

#[test]
fn the_openapi_file_names_every_route_and_no_other() {
    let file: Value = serde_json::from_str(assets::OPENAPI).unwrap();
    let described: Vec<(String, Vec<String>)> = file["paths"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(path, methods)| (path.clone(), methods.as_object().unwrap().keys().cloned().collect()))
        .collect();
    let mut routes: Vec<(String, Vec<String>)> = table()
        .into_iter()
        .map(|(path, methods, _)| (path.to_owned(), methods.iter().map(|&method| method.to_owned()).collect()))
        .collect();
    routes.sort();
    assert_eq!(described, routes);
}

#[tokio::test]
async fn answers_are_as_the_openapi_file_says() {
    let file: Value = serde_json::from_str(assets::OPENAPI).unwrap();
    let api = api("/bin/false");
    let build = Build::named("test");
    run_cells(api.dir.path(), "one", &build);
    run_cells(api.dir.path(), "two", &build);
    let id = noctule_lab::page::store::Store::new(api.dir.path(), build).run("one").unwrap().records[0].id.clone();
    std::fs::write(api.dir.path().join("one").join(format!("{id}.samples")), "{\"name\":\"x\",\"seconds\":3.0,\"warmup\":1.0,\"limit_mbit\":null}\n{\"t\":0.1,\"goodput_mbit\":1.0,\"queue_ms\":null,\"rtt_ms\":null,\"loss\":0.0}\n").unwrap();
    std::fs::write(api.dir.path().join("two/alone.samples"), "").unwrap();
    for (route, path, pointer) in [
        ("/api/server", "/api/server".to_owned(), "/version"),
        ("/api/runs", "/api/runs".to_owned(), "/1/name"),
        ("/api/runs/{run}", "/api/runs/one".to_owned(), "/rows/1/share"),
        ("/api/runs/{run}", "/api/runs/two?limit=1&offset=2".to_owned(), "/rows/0/id"),
        ("/api/runs/{run}/matrix", "/api/runs/one/matrix".to_owned(), "/planes/0/cells/0/1/share"),
        ("/api/runs/{run}/cells/{id}", format!("/api/runs/one/cells/{id}"), "/report/goodput_mbit"),
        ("/api/runs/{run}/cells/{id}", "/api/runs/two/cells/alone".to_owned(), "/id"),
        ("/api/runs/{run}/cells/{id}/samples", format!("/api/runs/one/cells/{id}/samples"), "/samples/0/t"),
        ("/api/compare", "/api/compare?a=one&b=two".to_owned(), "/rows/1/factor"),
    ] {
        let (status, value) = api.get(&path).await;
        assert_eq!(status, 200, "{path}: {value}");
        let schema = &file["paths"][route]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        fits(&file, schema, &value, &path).unwrap();
        assert!(value.pointer(pointer).is_some_and(|value| !value.is_null()), "{path}: {pointer} of {value}");
    }
    let factor = api.get("/api/compare?a=one&b=two").await.1["median_factor"].clone();
    assert_eq!(factor, json!(1.0), "the same cells");
    // Two rows of losses, in the simulator of one hop: the published table has figures for other rates.
    assert_eq!(api.get("/api/runs/one/matrix?beside=brtp-1gbit").await.0, 200);
    for path in ["/", "/page.css", "/page.js", "/charts.js", "/views.js", "/uplot.js", "/uplot.css", "/uplot-license.txt", "/openapi.json"]
    {
        let (status, kind, text) = api.ask("GET", path, &[], "").await;
        assert!(status == 200 && !kind.is_empty() && !text.is_empty(), "{path}");
        // Whatever a page loads is here: no address of anybody else stands where a browser would fetch it.
        assert!(
            !text.contains("src=\"http") && !text.contains("href=\"http") && !text.contains("url(") && !text.contains("@import"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_answered_is_told_as_json() {
    let api = api("/bin/false");
    run_cells(api.dir.path(), "one", &Build::named("test"));
    for (path, status, says) in [
        ("/api/runs/none", 404, "no run"),
        ("/api/runs/..%2F..%2Fetc", 404, "no name of a run"),
        ("/api/runs/one/cells/none", 404, "no cell"),
        ("/api/runs/one/cells/..%2F..%2Fone", 404, "no cell"),
        ("/api/runs/one/cells/none/samples", 404, "--samples"),
        ("/api/runs/none/live", 404, "no run"),
        ("/api/runs/one/matrix?beside=none-such", 404, "published table"),
        ("/api/runs/one/matrix?rows=mtu", 404, "no axis"),
        ("/api/runs/one?limit=x", 400, "limit"),
        ("/api/runs/one?colour=red", 400, "colour"),
        ("/api/runs/%FF", 400, "UTF-8"),
        ("/api/compare?a=one", 400, "b"),
        ("/api/nothing", 404, "/openapi.json"),
    ] {
        let (got, value) = api.get(path).await;
        assert_eq!(got, status, "{path}: {value}");
        assert!(value["error"].as_str().unwrap().contains(says), "{path}: {value}");
    }
    let headers = [(guard::HEADER, "1"), ("content-type", "application/json")];
    for (method, path, headers, body, status) in [
        ("DELETE", "/api/runs", &headers[..], "", 405),
        ("POST", "/api/runs", &headers[1..], "{}", 403),
        ("POST", "/api/runs", &headers[..1], "{}", 415),
        ("POST", "/api/runs", &headers[..], "{", 400),
        ("POST", "/api/runs/one/cancel", &headers[..1], "", 409),
        ("POST", "/api/runs/none/cancel", &headers[..1], "", 404),
    ] {
        let (got, kind, text) = api.ask(method, path, headers, body).await;
        assert_eq!((got, kind.as_str()), (status, "application/json"), "{method} {path}: {text}");
    }
    let (status, ..) = api.ask("POST", "/api/runs", &headers, &" ".repeat(70_000)).await;
    assert_eq!(status, 413);
    // A broken file is told, and the rest is there; the folder may go at any moment.
    std::fs::write(api.dir.path().join("one/0123456789abcdef0123456789abcdef.json"), "{\"id\":").unwrap();
    let (_, view) = api.get("/api/runs/one").await;
    assert!(view["problems"][0].as_str().unwrap().contains("not a result") && view["rows"].as_array().unwrap().len() == 2);
    std::fs::remove_dir_all(api.dir.path()).unwrap();
    assert_eq!(api.get("/api/runs/one").await.0, 404);
    let (status, value) = api.get("/api/runs").await;
    assert!(status == 503 && value["error"].as_str().unwrap().contains("no such folder"), "{value}");
    let start = json!({ "name": "late", "what": { "kind": "grid", "flags": { "rate": "1mbit" } } });
    assert_eq!(api.post("/api/runs", &start).await.0, 503);
}

#[tokio::test]
async fn a_run_whose_folder_is_gone_can_be_ended_and_its_name_stays_taken_until_then() {
    let file: Value = serde_json::from_str(assets::OPENAPI).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let child = dir.path().join("child");
    std::fs::write(&child, "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&child, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let api = api_of(child.to_str().unwrap(), 2);
    let start = json!({ "name": "gone", "what": { "kind": "grid", "flags": { "rate": "1mbit" } } });
    assert_eq!(api.post("/api/runs", &start).await.0, 201);
    std::fs::remove_dir_all(api.dir.path().join("gone")).unwrap();
    let (status, value) = api.post("/api/runs", &start).await;
    assert_eq!(status, 409, "{value}");
    let (status, value) = api.post("/api/runs/gone/cancel", &json!({})).await;
    assert_eq!((status, value["state"].as_str()), (202, Some("stopping")), "{value}");
    let schema = &file["paths"]["/api/runs/{run}/cancel"]["post"]["responses"]["202"]["content"]["application/json"]["schema"];
    fits(&file, schema, &value, "cancel").unwrap();
    let end = Instant::now() + PATIENCE;
    while api.post("/api/runs/gone/cancel", &json!({})).await.0 != 404 {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_run_on_namespaces_that_left_no_report_is_not_finished() {
    let api = api("/bin/sleep");
    let start = json!({ "name": "net", "what": { "kind": "namespaces", "flags": { "rate": "1mbit" } } });
    assert_eq!(api.post("/api/runs", &start).await.0, 201);
    let end = Instant::now() + PATIENCE;
    let run = loop {
        let run = api.get("/api/runs/net").await.1;
        if run["state"] != "running" {
            break run;
        }
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!((run["state"].as_str(), run["done"].as_u64()), (Some("incomplete"), Some(0)), "{run}");
    assert!(run["rows"][0]["complaints"][0].as_str().unwrap().contains("no report"), "{run}");
    assert!(run["log"][0].as_str().unwrap().contains("sleep"), "{run}");
    std::fs::write(api.dir.path().join("net/namespaces.report"), "{\"goodput_mbit\":0.9}\n").unwrap();
    let run = api.get("/api/runs/net").await.1;
    assert_eq!((run["state"].as_str(), run["done"].as_u64()), (Some("finished"), Some(1)), "{run}");
    assert_eq!((run["rows"][0]["state"].as_str(), run["rows"][0]["goodput_mbit"].as_f64()), (Some("done"), Some(0.9)), "{run}");
}

#[tokio::test]
async fn a_run_on_namespaces_that_has_written_nothing_yet_is_seen_to_go_on_by_the_next_server() {
    let dir = tempfile::tempdir().unwrap();
    let child = dir.path().join("child");
    std::fs::write(&child, "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&child, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let first = api(child.to_str().unwrap());
    let start = json!({ "name": "net", "what": { "kind": "namespaces", "flags": { "rate": "1mbit" } } });
    assert_eq!(first.post("/api/runs", &start).await.0, 201);
    // It knows nothing of the child.
    let next = api_over(Arc::clone(&first.dir), "/bin/false", 1);
    let state = |run: &Value| (run["state"].as_str().map(str::to_owned), run["rows"][0]["state"].as_str().map(str::to_owned));
    let seen = next.get("/api/runs/net").await.1;
    if std::fs::read_to_string("/proc/locks").is_ok_and(|text| text.contains("FLOCK")) {
        assert_eq!(state(&seen), (Some("running".to_owned()), Some("running".to_owned())), "{seen}");
    } else {
        eprintln!("*** SKIPPED: /proc/locks shows no locks here");
    }
    assert_eq!(first.post("/api/runs/net/cancel", &json!({})).await.0, 202);
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = next.get("/api/runs/net").await.1;
        if state(&seen) == (Some("incomplete".to_owned()), Some("failed".to_owned())) {
            break;
        }
        assert!(Instant::now() < end, "{seen}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_others_put_into_a_folder_is_not_waited_for_nor_followed_nor_read_without_an_end() {
    let outside = tempfile::tempdir().unwrap();
    run_cells(outside.path(), "private", &Build::named("test"));
    std::fs::write(outside.path().join("secret"), "a secret\n").unwrap();
    let api = api("/bin/false");
    run_cells(api.dir.path(), "one", &Build::named("test"));
    let at = |name: &str| api.dir.path().join("one").join(name);
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, at(name)).unwrap();
    let long = |name: &str| std::fs::File::create(at(name)).unwrap().set_len(1 << 40).unwrap();
    let id = |digit: &str| digit.repeat(32);
    let fifos = [".cells.json".to_owned(), format!("{}.json", id("a")), "fifo.samples".to_owned(), "fifo.report".to_owned()];
    for name in &fifos {
        assert!(Command::new("mkfifo").arg(at(name)).status().unwrap().success());
    }
    link(&outside.path().join("secret"), ".log");
    link(Path::new("/dev/zero"), "zero.samples");
    link(&outside.path().join("secret"), &format!("{}.json", id("b")));
    std::os::unix::fs::symlink(outside.path().join("private"), api.dir.path().join("linked")).unwrap();
    std::os::unix::fs::symlink(outside.path(), api.dir.path().join("all")).unwrap();
    long(&format!("{}.json", id("c")));
    long("long.samples");
    long("namespaces.report");
    let look = async {
        let (_, runs) = api.get("/api/runs").await;
        assert_eq!(runs.as_array().unwrap().iter().map(|run| run["name"].as_str().unwrap()).collect::<Vec<_>>(), ["one"]);
        let (_, run) = api.get("/api/runs/one").await;
        assert_eq!((run["done"].as_u64(), run["log"].as_array().map(Vec::len)), (Some(2), Some(0)), "{run}");
        let problems = run["problems"].to_string();
        assert!(problems.contains(&format!("{}.json: longer than", id("c"))) && !problems.contains("secret"), "{problems}");
        let rows: Vec<&str> = run["rows"].as_array().unwrap()[2..].iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(rows, ["long", "namespaces"]);
        for path in ["linked", "all", "linked/cells/x", "one/cells/fifo", "one/cells/zero/samples", "all/matrix", "linked/live"] {
            assert_eq!(api.get(&format!("/api/runs/{path}")).await.0, 404, "{path}");
        }
        for id in ["long", "namespaces"] {
            assert_eq!(api.get(&format!("/api/runs/one/cells/{id}")).await.0, 200, "{id}");
        }
        assert_eq!(api.get("/api/runs/one/cells/long/samples").await.0, 422);
        let (status, _, events) = api.ask("GET", "/api/runs/one/live?cell=long", &[], "").await;
        assert!(status == 200 && events.contains("event: end"), "{events}");
        std::fs::remove_file(at(".cells.json")).unwrap();
        long(".cells.json");
        let (_, run) = api.get("/api/runs/one").await;
        assert!(run["problems"].to_string().contains(".cells.json: longer than"), "{run}");
    };
    tokio::time::timeout(PATIENCE, look).await.expect("nothing waits");
}

#[tokio::test]
async fn a_run_that_is_no_cell_is_running_as_long_as_its_course_is_written() {
    let api = api("/bin/false");
    let (folder, path) = (api.dir.path().join("alone"), api.dir.path().join("alone/try.samples"));
    std::fs::create_dir(&folder).unwrap();
    let head = Head { name: "noctule-lab sim".to_owned(), seconds: 3.0, warmup: 1.0, limit_mbit: None };
    let file = SampleFile::create(&path, &head).unwrap();
    if !std::fs::read_to_string("/proc/locks").is_ok_and(|text| text.contains("FLOCK")) {
        return eprintln!("*** SKIPPED: /proc/locks shows no locks here");
    }
    let (_, run) = api.get("/api/runs/alone").await;
    assert_eq!((run["state"].as_str(), run["rows"][0]["state"].as_str()), (Some("running"), Some("running")), "{run}");
    drop(file);
    let (_, run) = api.get("/api/runs/alone").await;
    assert_eq!((run["state"].as_str(), run["rows"][0]["state"].as_str()), (Some("finished"), Some("course")), "{run}");
}

#[tokio::test]
async fn a_name_is_used_once_and_places_are_limited() {
    let api = api("/bin/sleep");
    let start = |name: &str| json!({ "name": name, "what": { "kind": "grid", "flags": { "rate": "1mbit" } } });
    // `sleep` does not know the words of `cell` and ends at once; its place is free again, its folder stays.
    assert_eq!(api.post("/api/runs", &start("one")).await.0, 201);
    let end = Instant::now() + PATIENCE;
    while api.get("/api/runs/one").await.1["state"] != "incomplete" {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(api.get("/api/runs/one").await.1["log"][0].as_str().unwrap().contains("sleep"));
    let (status, value) = api.post("/api/runs", &start("one")).await;
    assert_eq!(status, 409, "{value}");
    let gone = self::api("/no/such/program");
    let (status, value) = gone.post("/api/runs", &start("one")).await;
    assert!(status == 500 && value["error"].as_str().unwrap().contains("/no/such/program"), "{value}");
    assert!(!gone.dir.path().join("one").exists(), "nothing is left of a run that never was");
}

/// A server of its own process.
struct Server {
    child: Child,
    address: SocketAddr,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Server {
    fn start(folder: &Path, more: &[&str]) -> Self {
        Self::by(Command::new(LAB), folder, more)
    }

    /// The same by a command that takes the words of this one.
    fn by(mut command: Command, folder: &Path, more: &[&str]) -> Self {
        command.arg("serve").arg(folder).args(["--listen", "127.0.0.1:0"]).args(more).env_remove("NOCTULE_LAB_TOKEN");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.strip_prefix("http://").and_then(|rest| rest.split('/').next()).and_then(|address| address.parse().ok());
        Self { child, address: address.unwrap_or_else(|| panic!("{line}")), stderr }
    }

    /// Sends a request and reads the answer to its end.
    fn ask(&self, method: &str, path: &str, more: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let (host, length) = (self.address, body.len());
        write!(socket, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n{body}")
            .unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn start_run(&self, name: &str, flags: &Value) {
        let body = json!({ "name": name, "what": { "kind": "grid", "flags": flags }, "workers": 1 }).to_string();
        let (status, text) = self.ask("POST", "/api/runs", "X-Noctule-Lab: 1\r\nContent-Type: application/json\r\n", &body);
        assert_eq!(status, 201, "{text}");
    }

    fn run(&self, name: &str) -> Value {
        let (_, text) = self.ask("GET", &format!("/api/runs/{name}"), "", "");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn until(&self, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let run = self.run(name);
            if is_so(&run) {
                return run;
            }
            assert!(Instant::now() < end, "{run}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it as a terminal does, and waits.
    fn end(mut self) {
        let id = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: the number of a child that nobody has waited for.
        unsafe { libc::kill(id, libc::SIGTERM) };
        assert!(self.child.wait().unwrap().success());
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only where a test failed before its end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_started_run_is_seen_live_and_ends_with_its_results() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let flags = json!({ "rate": "4mbit", "delay": "5ms", "loss": ["0%", "2%"], "seconds": 20, "warmup": 2 });
    server.start_run("seen", &flags);
    // The stream ends with the run.
    let (status, events) = server.ask("GET", "/api/runs/seen/live", "", "");
    assert_eq!(status, 200);
    assert!(events.contains("event: end") && events.contains("event: progress"), "{events}");
    let run = server.until("seen", |run| run["state"] == "finished");
    assert_eq!((run["done"].as_u64(), run["failed"].as_u64(), run["cells"].as_u64()), (Some(2), Some(0), Some(2)));
    let id = run["rows"][0]["id"].as_str().unwrap();
    let (_, course) = server.ask("GET", &format!("/api/runs/seen/cells/{id}/samples"), "", "");
    let course: Value = serde_json::from_str(&course).unwrap();
    assert_eq!(course["samples"].as_array().unwrap().len(), 200);
    // What the page made, the command line reads.
    let merge = Command::new(LAB).arg("merge").arg(dir.path().join("seen")).output().unwrap();
    assert!(merge.status.success() && String::from_utf8_lossy(&merge.stdout).contains("loss"), "{merge:?}");
    let file = dir.path().join("page.html");
    assert!(Command::new(LAB).arg("export").arg(dir.path().join("seen")).arg(&file).status().unwrap().success());
    assert!(std::fs::read_to_string(file).unwrap().contains("/samples"));
    server.end();
}

#[test]
fn a_run_that_is_ended_keeps_what_it_has_finished_and_goes_on_later() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--runs", "1"]);
    // One cell at a time, and the last ones long.
    let flags = json!({ "rate": ["1mbit", "60mbit", "70mbit"], "delay": "5ms", "seconds": 100, "warmup": 2 });
    server.start_run("ended", &flags);
    let body = r#"{"name":"more","what":{"kind":"grid","flags":{"rate":"1mbit"}}}"#;
    let (status, text) = server.ask("POST", "/api/runs", "X-Noctule-Lab: 1\r\nContent-Type: application/json\r\n", body);
    assert!(status == 429 && text.contains("ended"), "{status} {text}");
    server.until("ended", |run| run["done"] == 1);
    let (status, text) = server.ask("POST", "/api/runs/ended/cancel", "X-Noctule-Lab: 1\r\n", "");
    assert_eq!(status, 202, "{text}");
    let run = server.until("ended", |run| run["state"] == "incomplete");
    assert_eq!((run["done"].as_u64(), run["rows"].as_array().unwrap().len()), (Some(1), 3));
    assert_eq!(run["can_resume"], true);
    // The server takes its children with it.
    server.start_run("last", &json!({ "rate": "100mbit", "delay": "5ms", "seconds": 3000, "warmup": 2 }));
    server.until("last", |run| run["running"].as_array().unwrap().len() == 1);
    server.end();
    let other = Server::start(dir.path(), &[]);
    assert_eq!(other.run("last")["state"], "incomplete");
    other.end();
}

#[test]
fn a_run_that_was_ended_or_whose_process_died_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let resume = |server: &Server| server.ask("POST", "/api/runs/again/resume", "X-Noctule-Lab: 1\r\n", "");
    let server = Server::start(dir.path(), &["--runs", "1"]);
    // The first cell is short work, the others are long enough to be ended.
    let flags = json!({ "rate": ["1mbit", "6mbit", "7mbit"], "delay": "5ms", "seconds": 100, "warmup": 2 });
    server.start_run("again", &flags);
    let (status, text) = resume(&server);
    assert!(status == 409 && text.contains("under way"), "{status} {text}");
    server.until("again", |run| run["done"].as_u64() >= Some(1));
    server.ask("POST", "/api/runs/again/cancel", "X-Noctule-Lab: 1\r\n", "");
    let run = server.until("again", |run| run["state"] == "incomplete" || run["state"] == "finished");
    assert_eq!((run["state"].as_str(), run["can_resume"].as_bool()), (Some("incomplete"), Some(true)), "{run}");
    let done: Vec<&str> =
        run["rows"].as_array().unwrap().iter().filter(|row| row["state"] == "done").map(|row| row["id"].as_str().unwrap()).collect();
    let file = |id: &str| std::fs::metadata(dir.path().join("again").join(format!("{id}.json"))).unwrap();
    let inode = |id: &str| std::os::unix::fs::MetadataExt::ino(&file(id));
    let before: Vec<u64> = done.iter().map(|id| inode(id)).collect();
    server.end();
    // The next server goes on with it as well as the one that began it.
    let next = Server::start(dir.path(), &[]);
    let (status, text) = resume(&next);
    assert_eq!(status, 202, "{text}");
    let summary: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((summary["state"].as_str(), summary["can_resume"].as_bool()), (Some("running"), Some(false)), "{text}");
    let run = next.until("again", |run| run["state"] == "finished");
    assert_eq!((run["done"].as_u64(), run["failed"].as_u64(), run["can_resume"].as_bool()), (Some(3), Some(0), Some(false)), "{run}");
    assert_eq!(done.iter().map(|id| inode(id)).collect::<Vec<_>>(), before, "what was finished was not run again");
    let (status, text) = resume(&next);
    assert!(status == 409 && text.contains("result for everything"), "{status} {text}");
    next.end();
}

#[tokio::test]
async fn only_a_run_that_is_known_and_not_whole_goes_on() {
    let file: Value = serde_json::from_str(assets::OPENAPI).unwrap();
    let api = api("/bin/sleep");
    let grid = json!({ "name": "grid", "what": { "kind": "grid", "flags": { "rate": "1mbit" } } });
    let net = json!({ "name": "net", "what": { "kind": "namespaces", "flags": { "rate": "1mbit" } } });
    let until_incomplete = async |name: &str| {
        let end = Instant::now() + PATIENCE;
        while api.get(&format!("/api/runs/{name}")).await.1["state"] != "incomplete" {
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // `sleep` does not know the words and ends at once, as a process that dies.
    for (name, start) in [("grid", &grid), ("net", &net)] {
        assert_eq!(api.post("/api/runs", start).await.0, 201);
        until_incomplete(name).await;
        std::fs::remove_file(api.dir.path().join(name).join(".log")).unwrap();
        let (status, value) = api.post(&format!("/api/runs/{name}/resume"), &json!({})).await;
        assert_eq!(status, 202, "{value}");
        let schema = &file["paths"]["/api/runs/{run}/resume"]["post"]["responses"]["202"]["content"]["application/json"]["schema"];
        fits(&file, schema, &value, "resume").unwrap();
        until_incomplete(name).await;
        let log = api.get(&format!("/api/runs/{name}")).await.1["log"][0].clone();
        assert!(log.as_str().is_some_and(|line| line.contains("sleep")), "it was started again: {log}");
    }
    // A run on namespaces begins anew by what was asked for, and only by that.
    let request = api.dir.path().join("net/.request.json");
    std::fs::write(&request, r#"{"name":"net","what":{"kind":"namespaces","flags":{"capture":"/tmp"}}}"#).unwrap();
    let (status, value) = api.post("/api/runs/net/resume", &json!({})).await;
    assert!(status == 400 && value["error"].as_str().unwrap().contains("--capture"), "{value}");
    std::fs::write(&request, "{").unwrap();
    assert_eq!(api.post("/api/runs/net/resume", &json!({})).await.0, 422);
    std::fs::remove_file(&request).unwrap();
    let (status, value) = api.post("/api/runs/net/resume", &json!({})).await;
    assert!(status == 409 && value["error"].as_str().unwrap().contains("not started from a page"), "{value}");
    assert_eq!(api.get("/api/runs/net").await.1["can_resume"], false);
    assert_eq!(api.post("/api/runs/none/resume", &json!({})).await.0, 404);
    // Without the header that no form can send; and at a server that starts nothing.
    assert_eq!(api.ask("POST", "/api/runs/grid/resume", &[], "").await.0, 403);
    let shows = api_over(Arc::clone(&api.dir), "/bin/sleep", 0);
    assert_eq!(shows.get("/api/runs/grid").await.1["can_resume"], false);
    assert_eq!(shows.post("/api/runs/grid/resume", &json!({})).await.0, 403);
    // Places are limited for what goes on as for what begins.
    let child = api.dir.path().join("child");
    std::fs::write(&child, "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&child, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let busy = api_over(Arc::clone(&api.dir), child.to_str().unwrap(), 1);
    let other = json!({ "name": "other", "what": { "kind": "grid", "flags": { "rate": "1mbit" } } });
    assert_eq!(busy.post("/api/runs", &other).await.0, 201);
    assert_eq!(busy.post("/api/runs/grid/resume", &json!({})).await.0, 429);
    assert_eq!(busy.post("/api/runs/other/cancel", &json!({})).await.0, 202);
}

#[test]
fn commands_say_what_is_missing_before_they_run() {
    let dir = tempfile::tempdir().unwrap();
    let lab = |args: &[&str]| {
        let output = Command::new(LAB).args(args).current_dir(dir.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/bulk-grid.toml");
    for (args, says) in [
        (&["sim", "--seconds", "3", "--warmup", "1", "--samples", "none/try.samples"][..], "there is no folder none"),
        (&["run", scenario, "--samples"], "beside its result: name a folder for both by --results DIR"),
        (&["matrix", "--rate", "1mbit", "--samples"], "by --results DIR"),
        (&["export", "none", "page.html"], "none: no such folder"),
        (&["export", ".", "page.html"], "noctule-lab matrix --results"),
        (&["serve", "none", "--runs", "0"], "none: no such folder"),
    ] {
        let (code, out, err) = lab(args);
        assert!(code == Some(2) && out.is_empty() && err.contains(says), "{args:?}: {code:?} {err}");
    }
    let (code, _, err) = lab(&["net", "--backend", "netem", "--outage", "1s+1s"]);
    assert!((code == Some(2) && err.contains("outages")) || code == Some(3), "{code:?} {err}");
    std::fs::write(dir.path().join("file"), "").unwrap();
    for args in [&["export", "file", "page.html"][..], &["serve", "file"], &["serve", "file", "--runs", "0"]] {
        let (code, _, err) = lab(args);
        assert!(code == Some(2) && err.contains("a file, not a folder"), "{args:?}: {code:?} {err}");
    }
    run_cells(dir.path(), "one", &Build::named("test"));
    let (code, out, err) = lab(&["export", "one", "/dev/stdout"]);
    assert!(code == Some(0) && out.contains("/api/runs/-/cells/") && err.contains("2 cells; open it"), "{code:?} {err}");
    assert!(lab(&["export", ".", "page.html"]).2.contains("./one"));
}

#[test]
fn on_a_full_disk_no_run_begins_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=4k tmpfs \"$1\" || exit 77; shift; exec \"$@\"";
    let words = ["-rm", "sh", "-c", mount, "sh"];
    let tried = Command::new("unshare").args(words).arg(dir.path()).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return eprintln!("*** SKIPPED: no mount namespaces here");
    }
    let mut command = Command::new("unshare");
    command.args(words).arg(dir.path()).arg(LAB);
    let server = Server::by(command, dir.path(), &[]);
    let losses: Vec<String> = (0..30).map(|n| format!("{n}%")).collect();
    let body = json!({ "name": "much", "what": { "kind": "grid", "flags": { "loss": losses } } }).to_string();
    let (status, text) = server.ask("POST", "/api/runs", "X-Noctule-Lab: 1\r\nContent-Type: application/json\r\n", &body);
    assert!(status == 507 && text.contains("cannot be written"), "{status} {text}");
    assert_eq!(server.ask("GET", "/api/runs", "", "").1, "[]");
    server.end();
}

#[test]
fn what_a_server_cannot_be_is_said_before_it_serves() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--token", "0123456789abcdef"]);
    let refused = |args: &[&str]| {
        let output = Command::new(LAB).arg("serve").arg(dir.path()).args(args).env_remove("NOCTULE_LAB_TOKEN").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--listen", &server.address.to_string()]).contains("is taken"));
    assert!(refused(&["--listen", "0.0.0.0:0"]).contains("NOCTULE_LAB_TOKEN"));
    assert!(refused(&["--listen", "0.0.0.0:0", "--token", "short"]).contains("at least 16"));
    assert!(refused(&["--listen", "127.0.0.1:0", "--scenarios", "/no/such"]).contains("/no/such"));
    assert!(refused(&["--listen", "127.0.0.1:0", "--beside", "/no/such.csv"]).contains("/no/such.csv"));
    assert_eq!(server.ask("GET", "/api/runs", "", "").0, 401);
    assert_eq!(server.ask("GET", "/api/runs", "Authorization: Bearer 0123456789abcdef\r\n", "").0, 200);
    assert_eq!(server.ask("GET", "/", "", "").0, 200);
    server.end();
}
