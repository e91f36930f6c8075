"""Extensions: installed entry points, plug-in modules, and objects built from a `_target_`."""
