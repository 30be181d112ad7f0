/* Prints sizes and values that programs are compiled with. */
#include <madeleine.h>
#include <stdio.h>

#define SIZE(type) printf(#type ": %u bytes\n", (unsigned)sizeof(type))
#define VALUE(name) printf(#name " = %d\n", (int)name)

int main(void)
{
    SIZE(mad_session_t);
    SIZE(mad_channel_t);
    SIZE(mad_connection_t);
    SIZE(mad_send_mode_t);
    SIZE(mad_receive_mode_t);
    VALUE(mad_send_SAFER);
    VALUE(mad_send_LATER);
    VALUE(mad_send_CHEAPER);
    VALUE(mad_receive_EXPRESS);
    VALUE(mad_receive_CHEAPER);
    VALUE(MAD_ANY);
    return 0;
}
