/* What the examples share: a call that fails ends the program, and says why. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <madeleine.h>
#include <stdio.h>
#include <stdlib.h>

static inline void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, mad_error());
        exit(1);
    }
}

#define MUST(call) must((call) == 0, #call)

#endif
