//! The way of one request: there, what it does, and back.

use std::future::pending;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use super::call::{Call, Verb};
use super::client::AnswerBody;
use super::faults::{Fate, Fault, Silence, happens};
use super::log::Objects;
use super::process::{AtWrite, Process};
use super::status::Refused;
use super::store::{Done, Key};
use super::watches::{Watch, metadata_only};
use super::{BoxError, SentRequest, Shared, State, now};

type Answer = Result<Response<AnswerBody>, BoxError>;

impl Shared {
    /// Serves one request of a process.
    pub(super) async fn serve(self: Arc<Self>, process: Process, request: Request<Bytes>) -> Answer {
        if process.is_dead() {
            pending::<()>().await;
        }
        let (call, fate) = {
            let mut state = self.lock();
            let call = match Call::read(&request, &state.store.kinds) {
                Ok(call) => call,
                Err(refused) => return answer(refused.code, refused.status().to_string().into()),
            };
            state.sent(self.elapsed(), &process, &call);
            let State { faults, random, .. } = &mut *state;
            let fate = faults.fate(call.verb, random);
            (call, fate)
        };
        let (answered, answer) = oneshot::channel();
        let carried = Arc::clone(&self).carry(process.clone(), call, fate, answered);
        // On its way, whatever becomes of its sender.
        beside(carried);
        let answer = answer.await.unwrap_or_else(|_| Err(broken_off()));
        process.running().await;
        answer
    }

    async fn carry(self: Arc<Self>, process: Process, call: Call, fate: Fate, mut answered: oneshot::Sender<Answer>) {
        sleep_until(now() + fate.there).await;
        let answer = self.arrive(&process, &call, fate.fault);
        sleep_until(now() + fate.back).await;
        match answer {
            // The caller may be gone.
            Some(answer) => drop(answered.send(answer)),
            None => answered.closed().await,
        }
    }

    /// A request arrives. Gives its answer; `None` when there is none and the connection stays open.
    fn arrive(self: &Arc<Self>, process: &Process, call: &Call, fault: Option<Fault>) -> Option<Answer> {
        let silent = |silence| match silence {
            Silence::BreaksOff => Some(Err(broken_off())),
            Silence::Hangs => None,
        };
        let refused = |code| refused(&Refused::server(code));
        if self.lock().away {
            return Some(Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()));
        }
        let at_write = if call.verb.is_write() {
            process.writes()
        } else {
            AtWrite::Goes
        };
        if at_write == AtWrite::DiesBefore {
            process.kill();
            return None;
        }
        let answer = match fault {
            Some(Fault::Lost(silence)) => silent(silence),
            Some(Fault::Refused { code, applied: false }) => Some(refused(code)),
            Some(Fault::Conflict) => Some(self.conflict(call)),
            None => Some(self.answer(process, call)),
            Some(Fault::Unanswered(silence)) => {
                drop(self.answer(process, call));
                silent(silence)
            }
            Some(Fault::Refused { code, applied: true }) => {
                drop(self.answer(process, call));
                Some(refused(code))
            }
        };
        if at_write == AtWrite::DiesAfter {
            process.kill();
            return None;
        }
        answer
    }

    /// A conflict with nobody.
    fn conflict(&self, call: &Call) -> Answer {
        let resource = self.lock().store.kinds[call.kind].resource();
        refused(&Refused::changed(&resource, &call.name))
    }

    fn answer(self: &Arc<Self>, process: &Process, call: &Call) -> Answer {
        if call.verb == Verb::Create
            && let Some(refusal) = self.refusal(call)
        {
            let _ = self.result_of(process.name(), call.verb, |_| (call.key(), Err(refusal.clone())));
            return refused(&refusal);
        }
        match call.verb {
            Verb::Watch => {
                let watch = Watch::begin(self, &mut self.lock(), process, call);
                match watch {
                    Ok(watch) => Ok(Response::new(watch.body())),
                    Err(error) => refused(&error),
                }
            }
            Verb::List => match self.list(call) {
                Ok(body) => answer(200, body),
                Err(error) => refused(&error),
            },
            Verb::Get => match self.get(call) {
                Ok(body) => answer(200, body),
                Err(error) => refused(&error),
            },
            verb if verb.is_write() && self.rejects(call.kind) => {
                refused(&Refused::invalid("admission webhook denied the request"))
            }
            Verb::DeleteCollection => self.delete_collection(process, call),
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => {
                let result = self.result_of(process.name(), call.verb, |store| (call.key(), store.write(call)));
                match result {
                    Ok(done) => answer(done.code(), shown(call, &done)),
                    Err(error) => refused(&error),
                }
            }
        }
    }

    fn refusal(&self, call: &Call) -> Option<Refused> {
        let state = self.lock();
        let resource = state.store.kinds[call.kind].plural.clone();
        let refused = state.refused.get(&(resource, call.namespace.clone()));
        refused.cloned()
    }

    fn rejects(&self, kind: usize) -> bool {
        let state = self.lock();
        state.rejected.contains(&state.store.kinds[kind].plural)
    }

    fn get(&self, call: &Call) -> Result<Bytes, Refused> {
        let state = self.lock();
        let key = call.key();
        let found = state.store.get(&key);
        let not_found = || Refused::not_found(&state.store.kinds[call.kind].resource(), &call.name);
        let object = found.ok_or_else(not_found)?;
        Ok(if call.metadata_only {
            metadata_only(&object.value).to_string().into()
        } else {
            object.text().clone()
        })
    }

    fn list(&self, call: &Call) -> Result<Bytes, Refused> {
        let mut state = self.lock();
        let oldest = state.stale(call.kind);
        let list = state.store.list(call, oldest)?;
        let mut metadata = json!({"resourceVersion": list.revision.to_string()});
        if let Some(next) = list.next {
            metadata["continue"] = next.into();
        }
        let kind = &state.store.kinds[call.kind];
        let head = if call.metadata_only {
            json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        } else {
            json!({"kind": format!("{}List", kind.name), "apiVersion": kind.api_version(), "metadata": metadata})
        };
        let mut text = head.to_string();
        text.pop();
        text.push_str(",\"items\":[");
        for (place, object) in list.items.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            if call.metadata_only {
                text.push_str(&metadata_only(&object.value).to_string());
            } else {
                text.push_str(&String::from_utf8_lossy(object.text()));
            }
        }
        text.push_str("]}");
        Ok(text.into())
    }

    fn delete_collection(&self, process: &Process, call: &Call) -> Answer {
        let list = {
            let state = self.lock();
            state.store.list(call, state.store.revision())
        };
        match list {
            Ok(list) => {
                for object in list.items {
                    let text = |field: &str| object.value["metadata"][field].as_str().unwrap_or_default();
                    let key = Key::new(call.kind, text("namespace"), text("name"));
                    self.write(process.name(), Verb::Delete, |store| {
                        (key.clone(), store.delete(&key, &call.body))
                    });
                }
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
                answer(200, status.to_string().into())
            }
            Err(error) => refused(&error),
        }
    }
}

impl State {
    /// A process gives out a request.
    fn sent(&mut self, at: std::time::Duration, process: &Process, call: &Call) {
        let resource = &self.store.kinds[call.kind].plural;
        self.requests.push(SentRequest {
            at,
            by: process.name().to_owned(),
            verb: call.verb,
            resource: resource.clone(),
            name: call.name.clone(),
        });
        if call.verb.is_write()
            && let Some(observer) = &mut self.observer
        {
            observer.sent(process.name(), call.verb, resource, Objects(&self.store));
        }
    }

    /// The revision that the cache of the server shows to lists that allow an old one.
    fn stale(&mut self, kind: usize) -> u64 {
        let newest = self.store.revision();
        if !happens(self.faults.stale_lists, &mut self.random) {
            return newest;
        }
        let known = self.store.known(kind);
        match known.len() {
            0 => newest,
            changes => known[self.random.usize(..changes)].revision,
        }
    }
}

/// The body of the answer to a write that was accepted.
fn shown(call: &Call, done: &Done) -> Bytes {
    let object = done
        .after
        .as_ref()
        .or(done.last.as_ref().filter(|_| call.verb != Verb::Delete));
    match object {
        Some(object) if call.metadata_only => metadata_only(&object.value).to_string().into(),
        Some(object) => object.text().clone(),
        None => {
            let uid = done
                .before
                .as_ref()
                .map_or(&Value::Null, |before| &before.value["metadata"]["uid"]);
            let details = json!({"name": done.key.name, "uid": uid});
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            status.to_string().into()
        }
    }
}

fn refused(error: &Refused) -> Answer {
    let mut response = answer(error.code, error.status().to_string().into())?;
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    Ok(response)
}

fn answer(code: u16, body: Bytes) -> Answer {
    let body = Full::new(body).map_err(Into::into).boxed_unsync();
    let response = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json");
    Ok(response.body(body)?)
}

pub(super) fn broken_off() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the simulation")]
fn beside(task: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(task));
}
