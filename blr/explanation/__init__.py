"""Why a row has its class: what each feature contributes, and which labelled rows are like it."""
