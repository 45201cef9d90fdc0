// The types of the objects that deploy/kubernetes consists of, by `apiVersion/kind`.
import type { ClusterProps, ClusterSpec } from "@cdk8s-kit/crds/pg";
import type { IScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1";
import type { IPodMonitor, IPrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";
import type { IDeployment } from "kubernetes-models/apps/v1";
import type { IJob } from "kubernetes-models/batch/v1";
import type { INetworkPolicy } from "kubernetes-models/networking.k8s.io/v1";
import type { IPodDisruptionBudget } from "kubernetes-models/policy/v1";
import type { IConfigMap, INamespace, IPersistentVolumeClaim, ISecret, IService } from "kubernetes-models/v1";

// A type of cdk8s as JSON: names instead of enums, and numbers and quantities as such.
type Json<T> =
    T extends string ? `${T}` :
    T extends number | boolean ? T :
    T extends { readonly value: unknown } ? string | number :
    T extends (infer Item)[] ? Json<Item>[] :
    { [Key in keyof T]: Json<T[Key]> };

// CloudNativePG 1.28 has a field more than the package knows, and cdk8s has another name for one.
type Postgresql = Json<NonNullable<ClusterSpec["postgresql"]>>;
interface Synchronous { synchronous?: Postgresql["synchronous"] & { failoverQuorum?: boolean } }
interface Spec { postgresql?: Omit<Postgresql, "synchronous" | "pgHba"> & Synchronous & { pg_hba?: Postgresql["pgHba"] } }

export interface Manifests {
    "v1/ConfigMap": IConfigMap;
    "v1/Namespace": INamespace;
    "v1/PersistentVolumeClaim": IPersistentVolumeClaim;
    "v1/Secret": ISecret;
    "v1/Service": IService;
    "apps/v1/Deployment": IDeployment;
    "batch/v1/Job": IJob;
    "keda.sh/v1alpha1/ScaledObject": IScaledObject;
    "monitoring.coreos.com/v1/PodMonitor": IPodMonitor;
    "monitoring.coreos.com/v1/PrometheusRule": IPrometheusRule;
    "networking.k8s.io/v1/NetworkPolicy": INetworkPolicy;
    "policy/v1/PodDisruptionBudget": IPodDisruptionBudget;
    "postgresql.cnpg.io/v1/Cluster": {
        apiVersion: "postgresql.cnpg.io/v1";
        kind: "Cluster";
        metadata: { name: string; namespace?: string };
        spec: Omit<Json<ClusterProps["spec"]>, "postgresql"> & Spec;
    };
}
