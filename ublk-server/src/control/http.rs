//! HTTP around the handlers: routes, bodies, errors.

use super::api::{ApiError, DATA_MAX, Empty, ErrorBody, StatsRequest};
use super::handle::{self, CopyQuery, DataQuery, DeleteQuery};
use super::metrics;
use super::taps::{self, TraceQuery};
use super::zones::{self, ZonesQuery};
use crate::debug::{self, ThreadKind};
use crate::server::Server;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::Notify;

type Shared = State<Arc<Server>>;
type Body = Result<Bytes, BytesRejection>;
type Answer = Result<Response, ApiError>;

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        json(status, &ErrorBody { error: self })
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let mut text = serde_json::to_vec(value).expect("what the API shows has a JSON form");
    text.push(b'\n');
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn ok(value: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, value))
}

/// Reads a body; an empty one says nothing, which only types that need nothing take.
fn parse<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    let body = body_bytes(body)?;
    let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::bad_request("the body: not a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| ApiError::bad_request(format!("the body: {error}")))
}

fn body_bytes(body: Body) -> Result<Bytes, ApiError> {
    body.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::new(413, "too-large", format!("the body is longer than {DATA_MAX} bytes"))
        }
        _ => ApiError::bad_request(format!("the body: {error}")),
    })
}

fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    query.map(|Query(query)| query).map_err(|error| ApiError::bad_request(error.body_text()))
}

fn job_number(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| ApiError::new(404, "no-job", format!("\"{text}\" is no number of a job")))
}

/// Serves the API until `end` is notified and the requests under way are answered.
pub(crate) async fn serve(listener: UnixListener, server: Arc<Server>, end: Arc<Notify>) {
    let serving = axum::serve(listener, router(server));
    if let Err(error) = serving.with_graceful_shutdown(async move { end.notified().await }).await {
        tracing::error!("the control API ended: {error}");
    }
}

fn router(server: Arc<Server>) -> Router {
    let disk = get(async |State(server): Shared, Path(key): Path<String>| ok(&handle::disk(&server, &key)?));
    let limits =
        get(async |State(server): Shared, Path(key): Path<String>| ok(&handle::limits(&server, &key)?));
    let stats =
        get(async |State(server): Shared, Path(key): Path<String>| ok(&handle::stats(&server, &key, false)?));
    let latency =
        get(async |State(server): Shared, Path(key): Path<String>| ok(&taps::latency(&server, &key)?));
    let copies =
        get(async |State(server): Shared, Path(key): Path<String>| ok(&handle::copies(&server, &key)?));
    let faults = get(async |State(server): Shared, Path(key): Path<String>| ok(&server.faults(&key)?));
    Router::new()
        .route("/v1/pool", get(async |State(server): Shared| ok(&handle::pool(&server))))
        .route("/v1/disks", get(async |State(server): Shared| ok(&handle::disks(&server))).post(add))
        .route("/v1/disks/{id}", disk.delete(delete))
        .route("/v1/disks/{id}/limits", limits.patch(set_limits))
        .route("/v1/disks/{id}/stats", stats.post(reset_stats))
        .route("/v1/disks/{id}/latency", latency)
        .route("/v1/disks/{id}/trace", get(trace).delete(end_trace))
        .route("/v1/disks/{id}/copies", copies.post(start_copy))
        .route("/v1/disks/{id}/copies/{job}", get(copy).delete(cancel_copy))
        .route("/v1/disks/{id}/data", get(read).put(write).delete(discard))
        .route("/v1/disks/{id}/faults", faults.post(add_fault).delete(remove_faults))
        .route("/v1/disks/{id}/faults/{name}", axum::routing::delete(remove_fault))
        .route("/v1/disks/{id}/power-cut", post(power_cut))
        .route("/v1/disks/{id}/zones", get(report_zones).post(change_zones))
        .route("/v1/debug/panic", post(arm_panic))
        .route("/metrics", get(prometheus))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(usize::try_from(DATA_MAX).unwrap_or(usize::MAX)))
        .layer(middleware::from_fn(async |request: Request, next: Next| {
            debug::check(ThreadKind::Control);
            next.run(request).await
        }))
        .with_state(server)
}

async fn not_found(uri: Uri) -> ApiError {
    ApiError::new(404, "not-found", format!("there is no {}", uri.path()))
}

async fn not_allowed(uri: Uri) -> ApiError {
    ApiError::new(405, "not-allowed", format!("{} does not take this method", uri.path()))
}

async fn add(State(server): Shared, body: Body) -> Answer {
    Ok(json(StatusCode::CREATED, &handle::add(server, parse(body)?).await?))
}

async fn delete(
    State(server): Shared,
    Path(key): Path<String>,
    options: Result<Query<DeleteQuery>, QueryRejection>,
) -> Answer {
    ok(&handle::delete(server, key, query(options)?).await?)
}

async fn set_limits(State(server): Shared, Path(key): Path<String>, body: Body) -> Answer {
    ok(&handle::set_limits(server, key, parse(body)?).await?)
}

async fn reset_stats(State(server): Shared, Path(key): Path<String>, body: Body) -> Answer {
    let request: StatsRequest = parse(body)?;
    ok(&handle::stats(&server, &key, request.reset)?)
}

async fn trace(
    State(server): Shared,
    Path(key): Path<String>,
    options: Result<Query<TraceQuery>, QueryRejection>,
) -> Answer {
    ok(&taps::trace(&server, &key, query(options)?)?)
}

async fn end_trace(State(server): Shared, Path(key): Path<String>) -> Answer {
    taps::end_trace(&server, &key)?;
    ok(&Empty {})
}

async fn start_copy(
    State(server): Shared,
    Path(key): Path<String>,
    options: Result<Query<CopyQuery>, QueryRejection>,
    body: Body,
) -> Answer {
    if query(options)?.wait {
        return ok(&handle::run_copy(&server, &key, &parse(body)?).await?);
    }
    Ok(json(StatusCode::ACCEPTED, &handle::start_copy(&server, &key, &parse(body)?)?))
}

async fn copy(State(server): Shared, Path((key, job)): Path<(String, String)>) -> Answer {
    ok(&handle::copy(&server, &key, job_number(&job)?)?)
}

async fn cancel_copy(State(server): Shared, Path((key, job)): Path<(String, String)>) -> Answer {
    ok(&handle::cancel_copy(&server, &key, job_number(&job)?)?)
}

async fn read(
    State(server): Shared,
    Path(key): Path<String>,
    options: Result<Query<DataQuery>, QueryRejection>,
) -> Answer {
    let data = handle::read(&server, &key, query(options)?).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], data).into_response())
}

async fn write(
    State(server): Shared,
    Path(key): Path<String>,
    options: Result<Query<DataQuery>, QueryRejection>,
    body: Body,
) -> Answer {
    let data = body_bytes(body)?.to_vec();
    ok(&handle::write(&server, &key, query(options)?, data).await?)
}

async fn discard(
    State(server): Shared,
    Path(key): Path<String>,
    options: Result<Query<DataQuery>, QueryRejection>,
) -> Answer {
    ok(&handle::discard(&server, &key, query(options)?).await?)
}

async fn add_fault(State(server): Shared, Path(key): Path<String>, body: Body) -> Answer {
    Ok(json(StatusCode::CREATED, &server.add_fault(&key, &parse(body)?)?))
}

async fn remove_faults(State(server): Shared, Path(key): Path<String>) -> Answer {
    ok(&server.remove_faults(&key, None)?)
}

async fn remove_fault(State(server): Shared, Path((key, name)): Path<(String, String)>) -> Answer {
    ok(&server.remove_faults(&key, Some(&name))?)
}

async fn power_cut(State(server): Shared, Path(key): Path<String>, body: Body) -> Answer {
    ok(&server.power_cut(&key, &parse(body)?).await?)
}

async fn report_zones(
    State(server): Shared,
    Path(key): Path<String>,
    options: Result<Query<ZonesQuery>, QueryRejection>,
) -> Answer {
    ok(&zones::report(&server, &key, query(options)?).await?)
}

async fn change_zones(State(server): Shared, Path(key): Path<String>, body: Body) -> Answer {
    ok(&zones::change(&server, &key, parse(body)?).await?)
}

async fn arm_panic(State(server): Shared, body: Body) -> Answer {
    let answer: Empty = handle::arm_panic(&server, parse(body)?)?;
    ok(&answer)
}

async fn prometheus(State(server): Shared) -> Answer {
    let text = metrics::render(&server)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}
