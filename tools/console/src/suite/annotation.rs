//! Named annotations (bands) on every dashboard.

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{ORDER, Suite, SuiteError, with_json};

impl Suite {
    /// Begins an annotation; `None` if faults are not enabled, because the route does not exist then.
    pub async fn begin_annotation(&self, title: &str) -> Result<Option<Uuid>, SuiteError> {
        #[derive(Deserialize)]
        struct Begun {
            annotation_id: Uuid,
        }
        let request = with_json(self.admin(Method::POST, ORDER, "annotations"), &json!({"title": title}));
        match self.http.json::<Begun>(request).await {
            Ok(begun) => Ok(Some(begun.annotation_id)),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn end_annotation(&self, annotation_id: Uuid) -> Result<(), SuiteError> {
        self.done(self.admin(Method::POST, ORDER, &format!("annotations/{annotation_id}/end"))).await
    }
}
