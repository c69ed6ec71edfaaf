//! Answers as JSON, and what went wrong as JSON too: `{"error": TEXT}`.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A request that is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Problem {
    /// Of HTTP.
    pub status: StatusCode,
    /// What was wrong, and what to do.
    pub text: String,
}

impl Problem {
    /// A problem.
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// There is no such thing.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// The request says something that cannot be.
    pub fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Error<'a> {
            error: &'a str,
        }
        with_status(self.status, &Error { error: &self.text })
    }
}

/// What a handler comes to.
pub type Answer = Result<Response, Problem>;

/// 200 with JSON.
pub fn ok(value: &impl Serialize) -> Answer {
    Ok(with_status(StatusCode::OK, value))
}

/// JSON with another status.
pub fn with_status(status: StatusCode, value: &impl Serialize) -> Response {
    let (status, text) = match serde_json::to_vec(value) {
        Ok(text) => (status, text),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{{\"error\":\"{}\"}}", error.to_string().replace(['"', '\\'], "'")).into())
        }
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
