//! The routes: what is asked for, and which room answers. Files are read by threads that may wait.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{self, DefaultBodyLimit, FromRequest, Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};

use super::answer::{Answer, Problem, ok, with_status};
use super::assets;
use super::compare::Comparison;
use super::guard::{self, Guard};
use super::live;
use super::look::{Look, Looks, Seen};
use super::request::{self, Request};
use super::runs::{self, Runs, Work};
use super::store::{self, Run, Store, log};
use super::tables::Tables;
use super::view::{CourseView, MatrixAsk, Ours, RunState, RunSummary, RunView};

/// Largest request.
const MOST_BODY: usize = 64 << 10;
/// How long it may take to arrive.
const BODY: Duration = Duration::from_secs(10);
/// Cells of a run in one answer at most.
const MOST_ROWS: u32 = 10_000;
/// Listeners at the same time.
const MOST_LIVE: usize = 64;

/// What the routes share.
#[derive(Debug)]
pub struct Page {
    /// Results.
    pub store: Store,
    /// Children.
    pub runs: Runs,
    /// Published tables.
    pub tables: Tables,
    /// Where scenario files are, if any may be run.
    pub scenarios: Option<PathBuf>,
    /// Places for listeners.
    live: Arc<Semaphore>,
    /// What listeners have seen last.
    looks: Looks,
    /// True when the server ends.
    pub ends: watch::Receiver<bool>,
}

impl Page {
    /// A page; `ends` turns true when the server ends, so that listeners do not hold it.
    pub fn new(store: Store, runs: Runs, tables: Tables, scenarios: Option<PathBuf>, ends: watch::Receiver<bool>) -> Self {
        Self { store, runs, tables, scenarios, live: Arc::new(Semaphore::new(MOST_LIVE)), looks: Looks::default(), ends }
    }

    /// Every run.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn runs(&self) -> Result<Vec<RunSummary>, Problem> {
        let mut names = self.store.names()?;
        // A run whose folder somebody has removed can still be ended.
        names.extend(self.runs.names());
        names.sort();
        names.dedup();
        // A folder that has vanished since is none.
        Ok(names.iter().filter_map(|name| self.seen(name).ok()).map(|(summary, ..)| summary).collect())
    }

    /// A run, and what this server does on it.
    ///
    /// # Errors
    /// There is none.
    pub fn seen(&self, name: &str) -> Result<(RunSummary, Run, Ours), Problem> {
        // Asked before the folder is read: what a child has left is there when it has ended.
        let ours = self.runs.ours(name);
        let run = match self.store.run(name) {
            Err(problem) if ours == Ours::No => return Err(problem),
            Err(_) => Run::bare(name, &self.store.path_of(name)?),
            Ok(run) => run,
        };
        let summary = RunSummary::of(&run, ours);
        let can_resume = summary.can_resume && self.runs.most() > 0;
        Ok((RunSummary { can_resume, ..summary }, run, ours))
    }

    /// Goes on with a run that was ended, or whose process died.
    ///
    /// # Errors
    /// There is none, somebody works on it, nothing of it is missing, it is not known what was asked for, or no more may run now.
    pub fn resume(&self, name: &str) -> Result<(), Problem> {
        let (summary, run, _) = self.seen(name)?;
        let refused = |text: &str| Problem::new(StatusCode::CONFLICT, format!("the run {name:?} {text}"));
        match summary.state {
            RunState::Running | RunState::Stopping => return Err(refused("is under way")),
            RunState::Finished => return Err(refused("has a result for everything that was asked for")),
            RunState::Incomplete => {}
        }
        let request = store::request(&run.path);
        if !run.list.is_empty() {
            // The list says it all. How many workers there were may suit another machine.
            let workers = request.ok().flatten().and_then(|request| request.workers);
            return self.runs.resume(name, &run.path, workers, &Work::Listed);
        }
        let request = request?;
        let workers = request.as_ref().and_then(|request| request.workers);
        let work = match request {
            Some(request) => runs::prepare(&run.path, &request, &request.job(self.scenarios.as_deref())?)?,
            None => return Err(refused("was not started from a page: the command that began it goes on with it")),
        };
        self.runs.resume(name, &run.path, workers, &work)
    }

    /// A run that this server has just worked on, also if child and folder are gone since.
    fn seen_as(&self, name: &str, ours: Ours) -> Result<RunSummary, Problem> {
        match self.seen(name) {
            Ok((summary, ..)) => Ok(summary),
            Err(_) => Ok(RunSummary::of(&Run::bare(name, &self.store.path_of(name)?), ours)),
        }
    }

    /// The look at a run that its listeners share.
    pub fn look_of(&self, name: &str) -> Arc<Look> {
        self.looks.of(name)
    }

    /// How far a run is, seen just now or a moment ago.
    pub fn look(&self, look: &Look, name: &str) -> Seen {
        look.at(Instant::now(), || self.seen(name).map(|(summary, run, _)| Arc::new((summary, run))))
    }
}

/// What the server is, and what it may do.
#[derive(Debug, Serialize)]
struct Server<'a> {
    version: &'a str,
    build: &'a str,
    folder: String,
    runs_at_once: usize,
    cores: usize,
    scenarios: Vec<String>,
    tables: Vec<&'a str>,
}

type Shared = State<Arc<Page>>;
type Named<T> = Result<Path<T>, PathRejection>;

/// A path, its methods and what answers.
pub type Route = (&'static str, &'static [&'static str], MethodRouter<Arc<Page>>);

/// Every path below `/api` with its methods, as `openapi.json` has them.
pub fn table() -> Vec<Route> {
    vec![
        ("/api/server", &["get"], get(server)),
        ("/api/runs", &["get", "post"], get(list_runs).post(start_run)),
        ("/api/runs/{run}", &["get"], get(show_run)),
        ("/api/runs/{run}/cancel", &["post"], post(cancel_run)),
        ("/api/runs/{run}/resume", &["post"], post(resume_run)),
        ("/api/runs/{run}/matrix", &["get"], get(show_matrix)),
        ("/api/runs/{run}/live", &["get"], get(show_live)),
        ("/api/runs/{run}/cells/{id}", &["get"], get(show_cell)),
        ("/api/runs/{run}/cells/{id}/samples", &["get"], get(show_course)),
        ("/api/compare", &["get"], get(compare)),
    ]
}

/// The whole server.
pub fn router(page: Arc<Page>, guard: Guard) -> Router {
    let mut router = Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", assets::INDEX)))
        .route("/page.css", get(async || file("text/css; charset=utf-8", assets::STYLE)))
        .route("/uplot.css", get(async || file("text/css; charset=utf-8", assets::UPLOT_STYLE)))
        .route("/uplot-license.txt", get(async || file("text/plain; charset=utf-8", assets::UPLOT_LICENSE)))
        .route("/openapi.json", get(async || file("application/json", assets::OPENAPI)));
    for (name, text) in assets::SCRIPTS {
        router = router.route(&format!("/{name}"), get(async move || file("text/javascript; charset=utf-8", text)));
    }
    for (path, _, methods) in table() {
        router = router.route(path, methods);
    }
    router
        .fallback(async || Problem::not_found("there is nothing here; /openapi.json says what there is"))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods; /openapi.json names them")
        })
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .layer(middleware::from_fn_with_state(Arc::new(guard), guard::layer))
        .with_state(page)
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Does what may wait for a disk on a thread for that.
async fn wait<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("this request ended badly: {error}"))))
}

fn named<T>(path: Named<T>) -> Result<T, Problem> {
    path.map(|Path(value)| value).map_err(|e| Problem::new(e.status(), e.body_text()))
}

fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    query.map(|Query(value)| value).map_err(|e| Problem::new(e.status(), e.body_text()))
}

async fn server(State(page): Shared) -> Answer {
    wait(move || {
        ok(&Server {
            version: env!("CARGO_PKG_VERSION"),
            build: page.store.build().name(),
            folder: page.store.root().display().to_string(),
            runs_at_once: page.runs.most(),
            cores: crate::sim::all_cores(),
            scenarios: request::scenario_names(page.scenarios.as_deref()),
            tables: page.tables.names(),
        })
    })
    .await
}

async fn list_runs(State(page): Shared) -> Answer {
    wait(move || ok(&page.runs()?)).await
}

async fn start_run(State(page): Shared, request: extract::Request) -> Answer {
    let is_json = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")));
    if !is_json {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a request is JSON: Content-Type: application/json"));
    }
    let late = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, format!("a request arrives within {} s", BODY.as_secs()));
    let body = tokio::time::timeout(BODY, Bytes::from_request(request, &())).await.map_err(late)?;
    let body = body.map_err(|e| Problem::new(e.status(), e.body_text()))?;
    wait(move || {
        let request = Request::parse(&body)?;
        let job = request.job(page.scenarios.as_deref())?;
        page.runs.start(page.store.root(), &request, &job)?;
        Ok(with_status(StatusCode::CREATED, &page.seen_as(&request.name, Ours::Works)?))
    })
    .await
}

async fn cancel_run(State(page): Shared, run: Named<String>) -> Answer {
    let run = named(run)?;
    wait(move || {
        // First, whatever has become of its folder.
        match page.runs.cancel(&run) {
            Ok(()) => Ok(with_status(StatusCode::ACCEPTED, &page.seen_as(&run, Ours::Stopping)?)),
            Err(problem) => Err(page.seen(&run).err().unwrap_or(problem)),
        }
    })
    .await
}

async fn resume_run(State(page): Shared, run: Named<String>) -> Answer {
    let run = named(run)?;
    wait(move || {
        page.resume(&run)?;
        Ok(with_status(StatusCode::ACCEPTED, &page.seen_as(&run, Ours::Works)?))
    })
    .await
}

/// Which rows of a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    #[serde(default)]
    offset: u32,
    #[serde(default = "most_rows")]
    limit: u32,
}

fn most_rows() -> u32 {
    MOST_ROWS
}

async fn show_run(State(page): Shared, run: Named<String>, rows: Result<Query<Rows>, QueryRejection>) -> Answer {
    let (run, rows) = (named(run)?, asked(rows)?);
    wait(move || {
        let log = log(&page.store.path_of(&run)?);
        let (summary, run, ours) = page.seen(&run)?;
        ok(&RunView { log, ..RunView::of(summary, &run, ours, rows.offset as usize, rows.limit.min(MOST_ROWS) as usize) })
    })
    .await
}

async fn show_matrix(State(page): Shared, run: Named<String>, ask: Result<Query<MatrixAsk>, QueryRejection>) -> Answer {
    let (run, ask) = (named(run)?, asked(ask)?);
    wait(move || ok(&page.store.run(&run)?.matrix(&page.tables, &ask)?)).await
}

async fn show_cell(State(page): Shared, path: Named<(String, String)>) -> Answer {
    let (run, id) = named(path)?;
    wait(move || {
        let (_, run, ours) = page.seen(&run)?;
        ok(&run.cell(&page.store, &id, ours)?)
    })
    .await
}

async fn show_course(State(page): Shared, path: Named<(String, String)>) -> Answer {
    let (run, id) = named(path)?;
    wait(move || ok(&CourseView::of(&page.seen(&run)?.1, &id)?)).await
}

/// Which runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Both {
    a: String,
    b: String,
    a_build: Option<String>,
    b_build: Option<String>,
}

async fn compare(State(page): Shared, both: Result<Query<Both>, QueryRejection>) -> Answer {
    let both = asked(both)?;
    wait(move || {
        let (a, b) = (page.store.run(&both.a)?, page.store.run(&both.b)?);
        ok(&Comparison::of((&a, both.a_build.as_deref()), (&b, both.b_build.as_deref()))?)
    })
    .await
}

/// Which cell of a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Followed {
    cell: Option<String>,
}

async fn show_live(State(page): Shared, run: Named<String>, cell: Result<Query<Followed>, QueryRejection>) -> Answer {
    let (run, cell) = (named(run)?, asked(cell)?.cell);
    let place = Arc::clone(&page.live).try_acquire_owned().map_err(|_| live::full(MOST_LIVE))?;
    // The same look as that of others that follow the run, and as its first one.
    let look = page.look_of(&run);
    let (found, seen, name) = (Arc::clone(&page), Arc::clone(&look), run.clone());
    wait(move || found.look(&seen, &name).map(|_| ())).await?;
    Ok(Sse::new(live::follow(page, run, look, cell, place)).keep_alive(KeepAlive::default()).into_response())
}
