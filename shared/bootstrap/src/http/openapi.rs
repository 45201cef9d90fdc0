//! The service's OpenAPI document: the service's info, and the responses that the shell adds to each operation, so that handlers
//! need not repeat them.

use utoipa::{
    PartialSchema as _, ToSchema as _,
    openapi::{
        Components, Content, InfoBuilder, LicenseBuilder, Object, OpenApi, OpenApiBuilder, Ref, RefOr, Response,
        ResponseBuilder, Schema, Type,
        path::{Operation, Parameter, ParameterIn, PathItem},
        schema::{AdditionalProperties, ArrayItems, SchemaType},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::{FieldError, PROBLEM_JSON, Problem, admin::needs_token};

const ADMIN_SCHEME: &str = "admin_token";

/// The identity of a service in logs, traces, metrics and its OpenAPI document.
#[derive(Clone, Copy, Debug)]
pub struct ServiceInfo {
    /// The name, such as `order`.
    pub name: &'static str,
    /// The title of its OpenAPI document.
    pub title: &'static str,
    /// What it does, in a sentence or two.
    pub description: &'static str,
    /// Its version: `env!("CARGO_PKG_VERSION")`.
    pub version: &'static str,
}

/// A document with title, version, licence and the shared schemas, and no paths yet.
pub fn openapi(service: &ServiceInfo) -> OpenApi {
    let license = LicenseBuilder::new().name("MIT OR Apache-2.0").identifier(Some("MIT OR Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title(service.title)
        .description(Some(service.description))
        .version(service.version)
        .license(Some(license))
        .build();
    OpenApiBuilder::new().info(info).components(Some(shared_components())).build()
}

/// Adds the problems that the shell answers to each operation, unless the operation documents them itself.
pub(crate) fn add_common_answers(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            for (status, description) in common_answers(path, operation) {
                let answers = &mut operation.responses.responses;
                answers.entry(status.to_owned()).or_insert_with(|| RefOr::T(problem(description)));
            }
            if needs_token(path) {
                operation.security = Some(vec![SecurityRequirement::new(ADMIN_SCHEME, Vec::<String>::new())]);
            }
        }
    }
}

/// Documents that texts hold no NUL character (`super::extract` refuses it), unless their schema limits them further.
pub(crate) fn exclude_nul(document: &mut OpenApi) {
    for operation in document.paths.paths.values_mut().flat_map(operations) {
        for parameter in operation.parameters.iter_mut().flatten() {
            if let RefOr::T(Parameter {
                parameter_in: ParameterIn::Path | ParameterIn::Query,
                schema: Some(schema),
                ..
            }) = parameter
            {
                exclude_nul_in(schema);
            }
        }
    }
    document.components.iter_mut().flat_map(|all| all.schemas.values_mut()).for_each(exclude_nul_in);
}

fn exclude_nul_in(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(text)) if is_free_text(text) => text.pattern = Some(r"^[^\u0000]*$".to_owned()),
        RefOr::T(Schema::Object(object)) => {
            object.properties.values_mut().for_each(exclude_nul_in);
            if let Some(AdditionalProperties::RefOr(values)) = object.additional_properties.as_deref_mut() {
                exclude_nul_in(values);
            }
        }
        RefOr::T(Schema::Array(array)) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                exclude_nul_in(items);
            }
        }
        RefOr::T(Schema::OneOf(any)) => any.items.iter_mut().for_each(exclude_nul_in),
        RefOr::T(Schema::AnyOf(any)) => any.items.iter_mut().for_each(exclude_nul_in),
        RefOr::T(Schema::AllOf(all)) => all.items.iter_mut().for_each(exclude_nul_in),
        _ => {}
    }
}

fn is_free_text(schema: &Object) -> bool {
    let is_text = match &schema.schema_type {
        SchemaType::Type(kind) => *kind == Type::String,
        SchemaType::Array(kinds) => kinds.contains(&Type::String),
        SchemaType::AnyValue => false,
    };
    is_text && schema.pattern.is_none() && schema.format.is_none() && schema.enum_values.is_none()
}

fn common_answers(path: &str, operation: &Operation) -> Vec<(&'static str, &'static str)> {
    let mut answers = vec![("500", "The service failed; the failure is logged, not shown")];
    if path.starts_with("/health") || path == "/metrics" || path == "/openapi.json" || path == "/docs" {
        return answers;
    }
    answers.push(("503", "A dependency is unavailable or the service is overloaded; see `Retry-After`"));
    if operation.request_body.is_some() {
        answers.push(("400", "The body is not JSON"));
        answers.push(("408", "The body did not arrive in time"));
        answers.push(("413", "The body is too large"));
        answers.push(("415", "The body is not declared as JSON, or it is encoded"));
    }
    if operation.request_body.is_some() || operation.parameters.as_ref().is_some_and(|all| !all.is_empty()) {
        answers.push(("422", "The input is well-formed, but not acceptable"));
    }
    if needs_token(path) {
        answers.push(("401", "The admin token is missing"));
        answers.push(("403", "The admin token is wrong"));
    }
    answers
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, options, head, patch, trace, .. } = item;
    [get, put, post, delete, options, head, patch, trace].into_iter().flatten()
}

fn problem(description: &str) -> Response {
    let schema = Ref::from_schema_name(Problem::name());
    ResponseBuilder::new()
        .description(description)
        .content(PROBLEM_JSON, Content::new(Some(RefOr::Ref(schema))))
        .build()
}

fn shared_components() -> Components {
    let mut components = Components::new();
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    components.schemas.insert(FieldError::name().into_owned(), FieldError::schema());
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme(ADMIN_SCHEME, SecurityScheme::Http(bearer));
    components
}
