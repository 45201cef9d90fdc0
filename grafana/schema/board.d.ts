// What a dashboard of this suite is: Grafana's own types, where they are loose made as narrow as the panels that are used.
// Dashboards are JSON, so where Grafana has an enumeration of strings, JSON has the string.
import type * as grafana from "@grafana/schema";
import type * as raw from "@grafana/schema/dist/types/raw/dashboard/x/dashboard_types.gen.d.ts";
import type * as barchart from "@grafana/schema/dist/types/raw/composable/barchart/panelcfg/x/BarChartPanelCfg_types.gen.d.ts";
import type * as bargauge from "@grafana/schema/dist/types/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen.d.ts";
import type * as stat from "@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts";
import type * as timeline from "@grafana/schema/dist/types/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen.d.ts";
import type * as table from "@grafana/schema/dist/types/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen.d.ts";
import type * as timeseries from "@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts";

type Json<T> = unknown extends T ? unknown
    : T extends string ? (string extends T ? string : `${T}`)
    : T extends number | boolean | null | undefined ? T
    : T extends Array<infer Item> ? Json<Item>[]
    : T extends object ? { [Key in keyof T]: Json<T[Key]> }
    : T;

type Datasource =
    | { type: "prometheus"; uid: "prometheus" }
    | { type: "grafana-postgresql-datasource"; uid: "postgres" };

// Not interfaces, because Grafana wants them to be open records, which interfaces are not.
type Query = Pick<grafana.DataQuery, "refId" | "hide">;

type PrometheusQuery = Query & {
    datasource?: { type: "prometheus"; uid: "prometheus" };
    expr: string;
    editorMode?: "code";
    legendFormat?: string;
    format?: "table";
    instant?: boolean;
    range?: boolean;
    exemplar?: boolean;
    interval?: string;
};

type SqlQuery = Query & {
    datasource?: { type: "grafana-postgresql-datasource"; uid: "postgres" };
    rawSql: string;
    rawQuery: true;
    editorMode: "code";
    format: "table";
};

type Field<Custom> = Omit<Json<raw.FieldConfig>, "custom" | "unit"> & { unit: string; custom?: Json<Custom> };

type PanelOf<Type extends string, Options, Custom> =
    Omit<Json<raw.Panel>, "type" | "options" | "fieldConfig" | "targets" | "datasource"> & {
        type: Type;
        id: number;
        title: string;
        description: string;
        gridPos: raw.GridPos;
        options: Json<Options>;
        fieldConfig: Omit<Json<raw.FieldConfigSource>, "defaults"> & { defaults: Field<Custom> };
        datasource?: Datasource;
        targets?: (PrometheusQuery | SqlQuery)[];
    };

type Panel =
    | PanelOf<"timeseries", timeseries.Options, timeseries.FieldConfig>
    | PanelOf<"stat", stat.Options, never>
    | PanelOf<"bargauge", bargauge.Options, never>
    | PanelOf<"barchart", barchart.Options, barchart.FieldConfig>
    | PanelOf<"state-timeline", timeline.Options, timeline.FieldConfig>
    | PanelOf<"table", table.Options, table.FieldConfig>;

// What a folded row holds lies in it.
type Row = Json<Omit<raw.RowPanel, "panels">> & { collapsed: true; panels: Panel[] };

type Annotation = Omit<grafana.AnnotationQuery, "target"> & {
    target?: PrometheusQuery | SqlQuery;
    // Of Prometheus only; Grafana reads them, its types do not know them.
    step?: string;
    tagKeys?: string;
    titleFormat?: string;
    textFormat?: string;
};

export type Board = Omit<Json<raw.Dashboard>, "panels" | "annotations" | "uid" | "title"> & {
    uid: string;
    title: string;
    panels: (Panel | Row)[];
    annotations: { list: Annotation[] };
};

// What Grafana itself takes.
export type Dashboard = Json<grafana.Dashboard>;
