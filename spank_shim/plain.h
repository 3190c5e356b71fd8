/* Values of flags that are right beyond doubt. */
#ifndef PYXIS_PLAIN_H
#define PYXIS_PLAIN_H

#include <stdbool.h>

/* Forms of values, named in options_table.h. */
enum plain {
	PLAIN_NONE,	 /* no value is */
	PLAIN_SWITCH,	 /* there is no value */
	PLAIN_PATH,	 /* an absolute path of a file */
	PLAIN_NAME,	 /* a container's name, without a mode */
	PLAIN_MOUNTS,	 /* mounts of paths: SRC[:DST[:FLAGS]],... */
	PLAIN_VARIABLES, /* names of variables: NAME,... */
};

/*
 * Whether a value certainly has its form. pyxis_py/args.py knows all values that are right; this
 * knows some of them, so that srun need not start an interpreter for them. A test compares the two.
 */
bool is_plain(enum plain form, const char *value);

#endif
